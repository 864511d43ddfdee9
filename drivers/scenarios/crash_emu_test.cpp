// kill -9 of either end at random moments: what is left, what can go on, and what was flushed.
#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <string>
#include <thread>

#include "drivers/base/prng.hpp"
#include "drivers/scenarios/emu_checks.hpp"
#include "drivers/scenarios/emu_rig.hpp"
#include "drivers/scenarios/flush_log.hpp"
#include "drivers/scenarios/guest_process.hpp"
#include "drivers/scenarios/temporary_disk.hpp"

namespace xblk::scenarios {
namespace {

constexpr DomId kVictim{1};
constexpr DomId kBystander{2};
constexpr int kMoments = 50;

void pass(std::uint64_t microseconds) {
  std::this_thread::sleep_for(std::chrono::microseconds(microseconds));
}

// From the first instruction of the guest on: while it attaches, negotiates, and works.
TEST(CrashEmu, AFrontendKilledAtFiftyMomentsLeavesNothingAndASuccessorConnects) {
  constexpr std::uint64_t kSeed = 90001;
  SCOPED_TRACE("seed " + std::to_string(kSeed));
  Prng random(kSeed);
  EmuRig rig({.guests = 2});
  rig.attach(kVictim, {.store = "ram:4MiB", .front_policy = {{"queues", "3"}}});
  rig.attach(kBystander, {.store = "ram:4MiB"});
  GuestProcess bystander(life_under_load(rig, kBystander, {.seed = kSeed, .pause = std::chrono::milliseconds(1)}));
  ASSERT_TRUE(bystander.wait_until_ready()) << bystander.stop() << rig.log();
  const std::size_t descriptors = rig.host_descriptors();
  int connected = 0;
  for (int moment = 0; moment < kMoments; ++moment) {
    SCOPED_TRACE("moment " + std::to_string(moment));
    rig.set_policies(kVictim, {.back_policy = {{"persistent", random.one_in(2) ? "1" : "0"},
                                               {"data-path", random.one_in(2) ? "map" : "copy"}}});
    GuestProcess victim(life_under_load(rig, kVictim, {.channels = 3, .seed = random.next()}));
    if (random.one_in(2)) {
      ASSERT_TRUE(victim.wait_until_ready()) << victim.stop() << rig.log();
      ++connected;
    }
    pass(random.below(20'000));
    victim.kill();
    EXPECT_TRUE(eventually([&] { return rig.host_descriptors() == descriptors; }))
        << rig.host_descriptors() << " descriptors, before " << descriptors;
    EXPECT_TRUE(eventually([&] { return rig.mapped_pieces(kVictim) == 0; })) << rig.mapped_pieces(kVictim);
    const QueueSample backend = backend_sample(rig, kVictim);
    for (std::size_t g = 0; g < kGaugeCount; ++g) ASSERT_EQ(backend.gauges[g], 0u) << kGaugeNames[g];
  }
  EXPECT_GT(connected, kMoments / 4);
  // Its predecessors wrote to the first half of the device.
  GuestProcess successor(life_under_load(rig, kVictim, {.first = Sectors(4096), .seed = kSeed}));
  EXPECT_TRUE(successor.wait_until_ready());
  pass(50'000);
  EXPECT_EQ(successor.stop(), "");
  EXPECT_EQ(bystander.stop(), "");
  EXPECT_EQ(rig.stop(), 0);
  EXPECT_EQ(rig.log().find("bug:"), std::string::npos) << "the host says at its end what was left: " << rig.log();
}

TEST(CrashEmu, AHostKilledAtFiftyMomentsFailsItsFrontendWithEnodevAndHasKeptWhatWasFlushed) {
  constexpr std::uint64_t kSeed = 90002;
  SCOPED_TRACE("seed " + std::to_string(kSeed));
  Prng random(kSeed);
  const TemporaryDisk disk;
  std::uint64_t durable = 0;
  for (int moment = 0; moment < kMoments; ++moment) {
    SCOPED_TRACE("moment " + std::to_string(moment));
    FlushLog log(random.next(), 8192);
    EmuRig rig;
    rig.attach(kVictim,
               {.store = disk.store(log.size()), .back_policy = {{"persistent", random.one_in(2) ? "1" : "0"}}});
    GuestProcess guest([&, options = rig.options(kVictim)](GuestProcess::Parent& parent) -> std::string {
      auto device = apps::EmuFrontend::open(options);
      if (!device) return "connect: " + device.error().message;
      parent.say_ready();
      return std::strerror(log.write_until_failure(**device));
    });
    ASSERT_TRUE(guest.wait_until_ready()) << guest.stop() << rig.log();
    pass(random.below(40'000));
    rig.kill_host();
    EXPECT_EQ(guest.wait_for_end(), std::strerror(ENODEV));
    durable += log.durable();
    EXPECT_EQ(log.first_damaged(disk.path()), log.durable()) << "in the file itself";
    if (moment % 10 != 0) continue;
    EmuRig next;
    next.attach(kVictim, {.store = disk.store(log.size())});
    auto device = next.connect(kVictim);
    ASSERT_TRUE(device) << device.error().message;
    EXPECT_EQ(log.first_damaged(**device), log.durable()) << "through a new host";
  }
  EXPECT_GT(durable, 100u) << "the log must have been written at all";
}

}  // namespace
}  // namespace xblk::scenarios
