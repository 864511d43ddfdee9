#include <gtest/gtest.h>

#include <string>

#include "drivers/base/statistics_file.hpp"
#include "drivers/scenarios/emu_checks.hpp"
#include "drivers/scenarios/emu_rig.hpp"
#include "drivers/scenarios/guest_process.hpp"
#include "drivers/scenarios/storm_emu.hpp"

namespace xblk::scenarios {
namespace {

TEST(StormEmu, SixtyFourDevicesComeBackFromEveryReconnectWithTheirDataAndNothingLeaks) {
  storm_over_processes(640001, 2);
}

// xenstored allows a domain 128 watches, 10 transactions and 1000 nodes: one of them left behind by each reconnect, and
// it would refuse the device before the end.
TEST(StormEmu, ADeviceReconnectsMoreOftenThanXenstoredWouldForgiveALeak) {
  constexpr DomId kGuest{1};
  constexpr std::uint32_t kReconnects = 140;
  EmuRig rig;
  rig.attach(kGuest, {});
  GuestProcess guest(life_under_load(rig, kGuest, {.depth = 1, .pause = std::chrono::milliseconds(1)}));
  ASSERT_TRUE(guest.wait_until_ready()) << guest.stop() << rig.log();
  for (std::uint32_t connects = 1; connects <= kReconnects; ++connects) {
    rig.ask_for_reconnect(kGuest);
    ASSERT_TRUE(eventually([&] {
      const auto statistics = read_statistics(rig.backend_statistics(kGuest));
      return statistics && statistics->generation > connects;
    })) << "reconnect "
        << connects << "\n"
        << rig.log();
  }
  EXPECT_EQ(guest.stop(), "");
  expect_closed_without_leak(rig, kGuest);
  EXPECT_EQ(rig.log(), "");
}

}  // namespace
}  // namespace xblk::scenarios
