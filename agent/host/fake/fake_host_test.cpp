#include "agent/host/fake/fake_host.hpp"

#include <csignal>

#include <gtest/gtest.h>

namespace xblk::host {
namespace {

TEST(FakeHost, TimePassesOnlyInWait) {
  bool written = false;
  FakeHost host([&](const ProcessSpec&) -> Result<FakeLife> {
    return FakeLife{.lifetime = seconds(3), .exit = {.exit_code = 1}, .at_end = [&] { written = true; }};
  });
  auto process = host.spawn({.argv = {"fio"}}).value();
  Process* list[] = {process.get()};
  EXPECT_EQ(host.wait(list, Instant(0) + seconds(1)), Wake::kDeadline);
  EXPECT_FALSE(process->status());
  host.raise_at(Instant(0) + seconds(2), SIGINT);
  EXPECT_EQ(host.wait(list, Instant::never()), Wake::kSignal);
  EXPECT_EQ(host.signals(), (SignalState{1, SIGINT}));
  EXPECT_EQ(host.wait(list, Instant::never()), Wake::kExited);
  EXPECT_EQ(host.now(), Instant(0) + seconds(3));
  EXPECT_EQ(process->status()->exit_code, 1);
  EXPECT_TRUE(written);
}

}  // namespace
}  // namespace xblk::host
