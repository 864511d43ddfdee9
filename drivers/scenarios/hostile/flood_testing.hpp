// XSA-349 with the real xenstored, short and long.
#pragma once

#include <gtest/gtest.h>

#include <fstream>
#include <string>

#include <fmt/format.h>

#include "drivers/scenarios/emu_checks.hpp"
#include "drivers/scenarios/hostile/hostile_guest.hpp"
#include "drivers/scenarios/workload.hpp"

namespace xblk::scenarios {

// Of a process, in KiB; 0: it has none.
inline std::uint64_t resident_kib(pid_t pid) {
  std::ifstream status(fmt::format("/proc/{}/status", pid));
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("VmRSS:")) return std::stoull(line.substr(6));
  }
  return 0;
}

// A guest rewrites the state that the backend watches `writes` times, and another one connects and works meanwhile.
inline void flood_states_beside_an_honest_guest(int writes) {
  constexpr DomId kHostile{1};
  constexpr DomId kHonest{2};
  constexpr std::uint64_t kGrowthMaxKib = 64 * 1024;  // a copy of each event of a million would need more
  EmuHostSetup setup;
  setup.guests = 2;
  setup.workers = 1;
  EmuRig rig(setup);
  rig.attach(kHostile, {});
  rig.attach(kHonest, {});
  const std::uint64_t before = resident_kib(rig.host_pid());
  ASSERT_GT(before, 0u);
  GuestProcess hostile([&](GuestProcess::Parent& parent) -> std::string {
    HostileGuest guest(rig, kHostile);
    if (!guest.connect()) return "could not connect";
    parent.say_ready();
    for (int i = 0; i < writes; ++i) guest.front().set_state(i % 2 == 0 ? "3" : "4");
    return guest.close() ? "" : "could not close";
  });
  ASSERT_TRUE(hostile.wait_until_ready()) << rig.log();
  {
    auto device = rig.connect(kHonest);
    ASSERT_TRUE(device) << device.error().message << rig.log();
    auto channel = (*device)->open_channel(0).value();
    Workload load(**device, *channel, {}, 349);
    while (load.completed() < 500) load.turn();
    load.drain();
    while (load.in_flight() > 0) load.turn();
    EXPECT_EQ(load.mismatches() + load.errors(), 0u);
  }
  EXPECT_EQ(hostile.wait_for_end(), "") << rig.log();
  EXPECT_LE(resident_kib(rig.host_pid()), before + kGrowthMaxKib);
  EXPECT_EQ(rig.stop(), 0);
}

}  // namespace xblk::scenarios
