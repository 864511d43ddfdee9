// The backend drivers end and start anew beside their live rings, as after an upgrade of dom0's daemon: no I/O is lost
// or fails, whatever moment it is.
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <thread>

#include "drivers/base/prng.hpp"
#include "drivers/scenarios/emu_checks.hpp"
#include "drivers/scenarios/emu_rig.hpp"
#include "drivers/scenarios/guest_process.hpp"
#include "drivers/scenarios/temporary_disk.hpp"

namespace xblk::scenarios {
namespace {

constexpr DomId kGuest{1};
constexpr int kRestarts = 20;
constexpr Bytes kSize{2 << 20};

int count(const std::string& text, const std::string& part) {
  int n = 0;
  for (auto at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++n;
  return n;
}

class RestartEmu : public testing::TestWithParam<const char*> {};

// The parameter is the persistent policy: its cache is empty again after each restart.
TEST_P(RestartEmu, TwentyRestartsUnderLoadLoseNoIoAndLeaveNothing) {
  constexpr std::uint64_t kSeed = 70001;
  SCOPED_TRACE("seed " + std::to_string(kSeed));
  Prng random(kSeed);
  const TemporaryDisk disk;
  EmuRig rig;
  rig.attach(kGuest, {.store = disk.store(kSize),
                      .front_policy = {{"queues", "3"}, {"persistent", GetParam()}},
                      .back_policy = {{"persistent", GetParam()}}});
  ASSERT_TRUE(eventually([&] { return rig.dom0().read(rig.backend_path(kGuest) + "/state").value_or("") == "2"; }));
  const std::size_t descriptors = rig.host_descriptors();
  // Few flushes: a restart waits for what is in flight, and a disk takes its time for them.
  GuestProcess guest(
      life_under_load(rig, kGuest, {.channels = 3, .barriers = false, .flush_one_in = 500, .seed = kSeed}));
  ASSERT_TRUE(guest.wait_until_ready()) << guest.stop() << rig.log();
  const std::size_t descriptors_connected = rig.host_descriptors();
  for (int restart = 1; restart <= kRestarts; ++restart) {
    std::this_thread::sleep_for(std::chrono::microseconds(random.below(30'000)));
    rig.restart_backends();
    ASSERT_TRUE(eventually([&] { return count(rig.log(), "took over 3 live rings") == restart; })) << rig.log();
  }
  EXPECT_TRUE(eventually([&] { return rig.host_descriptors() == descriptors_connected; }))
      << rig.host_descriptors() << " descriptors, before " << descriptors_connected;
  EXPECT_EQ(rig.dom0().read(rig.backend_path(kGuest) + "/xblk-negotiated/persistent").value_or(""), GetParam());
  EXPECT_EQ(rig.dom0().read(rig.backend_path(kGuest) + "/xblk-error").value_or(""), "");
  EXPECT_EQ(guest.stop(), "");
  expect_closed_without_leak(rig, kGuest);
  EXPECT_TRUE(eventually([&] { return rig.host_descriptors() == descriptors; }))
      << rig.host_descriptors() << " descriptors, before " << descriptors;
  // What a restart without a device to serve does is checked as well.
  rig.restart_backends();
  EXPECT_TRUE(rig.connect(kGuest)) << rig.log();
  EXPECT_EQ(rig.stop(), 0);
  EXPECT_EQ(count(rig.log(), "bug:"), 0) << rig.log();
}
INSTANTIATE_TEST_SUITE_P(Persistent, RestartEmu, testing::Values("1", "0"),
                         [](const auto& test) { return std::string(test.param) == "1" ? "persistent" : "mapped"; });

}  // namespace
}  // namespace xblk::scenarios
