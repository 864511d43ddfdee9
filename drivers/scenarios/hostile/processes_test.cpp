// Hostile guests as processes, beside honest ones, on the real host with the real xenstored: one worker for all of
// them, so that whatever one costs, the other would pay. Progress is counted, never timed.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <functional>
#include <string>
#include <thread>

#include "drivers/base/statistics_file.hpp"
#include "drivers/scenarios/emu_checks.hpp"
#include "drivers/scenarios/hostile/flood_testing.hpp"
#include "drivers/scenarios/hostile/hostile_guest.hpp"
#include "drivers/scenarios/workload.hpp"

namespace xblk::scenarios {
namespace {

using blkif::Op;
using peer::front::Notify;
using peer::front::Put;

constexpr DomId kHostile{1};
constexpr DomId kHonest{2};
constexpr std::uint64_t kSeed = 19770525;

struct Attack {
  const char* name;
  std::function<void(HostileGuest&)> once;
  Counter felt;  // of the attacked device: grows while the attack goes on
};
void PrintTo(const Attack& attack, std::ostream* out) {
  *out << attack.name;
}

void reconnect(HostileGuest& guest) {
  if (!guest.close() || !guest.connect()) std::abort();
  guest.refill(Put{.op = Op::read, .parts = {{0}}});
}

const Attack kAttacks[] = {
    {"XSA331_storm_of_events", [](HostileGuest& guest) { guest.player().play(Notify{100}); }, Counter::events_received},
    {"refills_its_ring",
     [](HostileGuest& guest) {
       guest.refill(Put{.op = Op::write, .parts = {{0}, {1}}});
     },
     Counter::requests_write},
    {"refills_its_ring_with_junk", [](HostileGuest& guest) { guest.refill(Put{.op = static_cast<Op>(99)}); },
     Counter::requests_malformed},
    {"XSA361_bad_grants",
     [](HostileGuest& guest) {
       guest.refill(Put{.op = Op::read, .parts = {{0}, {99}, {1}}});
     },
     Counter::map_errors},
    {"barriers", [](HostileGuest& guest) { guest.refill(Put{.op = Op::write_barrier, .parts = {{0}}}); },
     Counter::barrier_drains},
    {"XSA350_reconnects_as_fast_as_it_can", reconnect, Counter::requests},
};

class HostileProcess : public testing::TestWithParam<Attack> {};
INSTANTIATE_TEST_SUITE_P(Attacks, HostileProcess, testing::ValuesIn(kAttacks),
                         [](const auto& test) { return std::string(test.param.name); });

TEST_P(HostileProcess, AnHonestGuestOnTheSameWorkerConnectsWorksAndCloses) {
  EmuRig rig({.guests = 2, .workers = 1});
  rig.attach(kHostile, {});
  rig.attach(kHonest, {});
  GuestProcess hostile(hostile_life(rig, kHostile, GetParam().once));
  ASSERT_TRUE(hostile.wait_until_ready()) << rig.log();
  const auto felt = [&] { return backend_sample(rig, kHostile).get(GetParam().felt); };
  const std::uint64_t before = felt();
  EXPECT_TRUE(eventually([&] { return felt() > before; })) << "the attack goes on";
  {
    auto device = rig.connect(kHonest);
    ASSERT_TRUE(device) << device.error().message << rig.log();
    auto channel = (*device)->open_channel(0).value();
    Workload load(**device, *channel, {}, kSeed);
    while (load.completed() < 500) load.turn();
    load.drain();
    while (load.in_flight() > 0) load.turn();
    EXPECT_EQ(load.mismatches() + load.errors(), 0u);
    const std::uint64_t meanwhile = felt();
    EXPECT_TRUE(eventually([&] { return felt() > meanwhile; })) << "and has not ended meanwhile";
    EXPECT_TRUE((*device)->disconnect());
  }
  expect_closed_without_leak(rig, kHonest);
  hostile.kill();
  expect_closed_without_leak(rig, kHostile);
  EXPECT_EQ(rig.stop(), 0);
  EXPECT_EQ(rig.log().find("bug:"), std::string::npos) << rig.log();
}

// ---- XSA-349: watches
// ------------------------------------------------------------------------------------------------

TEST(BackendXsa349Processes, AFloodOfStatesDoesNotGrowTheHostNorStopOthers) {
  flood_states_beside_an_honest_guest(20000);
}

// ---- CVE-2026-100082: whoever reads statistics meets a disconnect
// ----------------------------------------------------

TEST(BackendCve2026_100082, StatisticsAreReadWhileTheDeviceComesAndGoes) {
  EmuRig rig({.workers = 1});
  rig.attach(kHostile, {});
  GuestProcess guest(hostile_life(rig, kHostile, reconnect));
  ASSERT_TRUE(guest.wait_until_ready()) << rig.log();
  std::uint32_t generation = 0;
  std::uint64_t requests = 0;
  std::uint64_t reads = 0;
  for (; generation < 60 && reads < 10'000'000; ++reads) {
    const auto sample = read_statistics(rig.backend_statistics(kHostile), kStatisticsQueuesMax);
    ASSERT_TRUE(sample) << sample.error().message;
    ASSERT_GE(sample->generation, generation);
    ASSERT_GE(sample->total(Counter::requests), requests) << "counters of a device outlive its connections";
    generation = sample->generation;
    requests = sample->total(Counter::requests);
  }
  EXPECT_EQ(generation, 60u);
  EXPECT_GT(reads, 60u);
  guest.kill();
  expect_closed_without_leak(rig, kHostile);
}

// ---- a guest that is killed in the middle of it
// ----------------------------------------------------------------------

TEST(HostileProcessDeath, AtAnyMomentOfAReconnectNothingIsLeft) {
  EmuRig rig({.workers = 1});
  rig.attach(kHostile, {});
  for (int round = 0; round < 8; ++round) {
    GuestProcess guest(hostile_life(rig, kHostile, reconnect));
    ASSERT_TRUE(guest.wait_until_ready()) << rig.log();
    std::this_thread::sleep_for(std::chrono::milliseconds(3 * round));
    guest.kill();
    expect_closed_without_leak(rig, kHostile);
  }
  EXPECT_EQ(rig.stop(), 0);
  EXPECT_EQ(rig.log().find("bug:"), std::string::npos) << rig.log();
}

}  // namespace
}  // namespace xblk::scenarios
