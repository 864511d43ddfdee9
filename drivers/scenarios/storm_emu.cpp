#include "drivers/scenarios/storm_emu.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <vector>

#include "drivers/base/prng.hpp"
#include "drivers/blkif/policy.hpp"
#include "drivers/scenarios/emu_checks.hpp"
#include "drivers/scenarios/emu_rig.hpp"
#include "drivers/scenarios/guest_process.hpp"
#include "drivers/scenarios/policy_storm.hpp"

namespace xblk::scenarios {
namespace {

constexpr std::uint16_t kGuests = 64;

class Storm {
 public:
  Storm() {
    for (std::uint16_t id = 1; id <= kGuests; ++id) {
      rig_.attach(DomId(id), {.store = "ram:2MiB", .front_policy = {{"queues", "4"}}, .back_policy = {}});
      asked_.emplace_back(PolicyPair{{{"queues", "4"}}, {}});
    }
    EXPECT_TRUE(eventually([&] { return all_backends_are("2"); })) << rig_.log();
  }

  void run(std::uint64_t seed, int bursts);

 private:
  bool all_backends_are(const std::string& state) {
    for (std::uint16_t id = 1; id <= kGuests; ++id) {
      if (rig_.dom0().read(rig_.backend_path(DomId(id)) + "/state").value_or("") != state) return false;
    }
    return true;
  }

  void start_guests(std::uint64_t seed) {
    for (std::uint16_t id = 1; id <= kGuests; ++id) {
      const GuestLoad load{
          .channels = 4, .depth = 1, .discards = false, .seed = seed + id, .pause = std::chrono::milliseconds(50)};
      guests_.emplace_back(life_under_load(rig_, DomId(id), load));
    }
    for (auto& guest : guests_) ASSERT_TRUE(guest.wait_until_ready()) << guest.stop() << rig_.log();
  }

  // Changes a few policies of one guest's device and asks for a reconnect.
  void shake(std::uint16_t index, Prng& random) {
    const DomId guest(static_cast<std::uint16_t>(index + 1));
    change_policies(asked_[index], random);
    rig_.set_policies(guest, {.front_policy = asked_[index].front, .back_policy = asked_[index].back});
    rig_.ask_for_reconnect(guest);
  }

  // Connected, with what was asked for last in force.
  bool came_back(std::uint16_t index) {
    const DomId guest(static_cast<std::uint16_t>(index + 1));
    const auto read = [&](const std::string& key) { return rig_.dom0().read(key).value_or(""); };
    const auto agreed = [&](const std::string& path, const blkif::PolicyMap& agreement) {
      return read(path + "/state") == "4" && std::all_of(agreement.begin(), agreement.end(), [&](const auto& key) {
               return read(path + "/xblk-negotiated/" + key.first) == key.second;
             });
    };
    return agreed(rig_.backend_path(guest), backend_agreement(asked_[index])) &&
           agreed(rig_.frontend_path(guest), frontend_agreement(asked_[index]));
  }

  void wait_until_all_came_back() {
    for (std::uint16_t i = 0; i < kGuests; ++i) {
      ASSERT_TRUE(eventually([&] { return came_back(i); }))
          << "guest " << i + 1 << ": "
          << rig_.dom0().read(rig_.frontend_path(DomId(i + 1)) + "/xblk-error").value_or("") << "\n"
          << rig_.log();
    }
  }

  // Of the guest's home, without the policies, which the test writes.
  std::size_t nodes(DomId guest) {
    auto tree = rig_.dom0().read_tree("/local/domain/" + std::to_string(guest.value())).value();
    return static_cast<std::size_t>(std::count_if(tree.begin(), tree.end(), [](const auto& node) {
      return node.first.find("xblk-policy") == std::string::npos;
    }));
  }

  void storm(std::uint64_t seed, int bursts) {
    Prng random(seed);
    for (int burst = 0; burst < bursts; ++burst) {
      SCOPED_TRACE(burst);
      for (int i = 0; i < kGuests; ++i) shake(static_cast<std::uint16_t>(random.below(kGuests)), random);
      wait_until_all_came_back();
      if (testing::Test::HasFatalFailure()) return;
    }
  }

  EmuRig rig_{{.guests = kGuests}};
  std::vector<PolicyPair> asked_;
  std::vector<GuestProcess> guests_;
};

void Storm::run(std::uint64_t seed, int bursts) {
  SCOPED_TRACE("seed " + std::to_string(seed));
  const std::size_t descriptors = rig_.host_descriptors();
  start_guests(seed);
  if (testing::Test::HasFatalFailure()) return;
  wait_until_all_came_back();
  const std::size_t nodes_before = nodes(DomId(1));
  storm(seed, bursts);
  if (testing::Test::HasFatalFailure()) return;
  // All alike again: whatever a reconnect leaves behind would show.
  for (std::uint16_t i = 0; i < kGuests; ++i) {
    set_defaults(asked_[i]);
    asked_[i].front["queues"] = "4";
    rig_.set_policies(DomId(i + 1), {.front_policy = asked_[i].front, .back_policy = asked_[i].back});
    rig_.ask_for_reconnect(DomId(i + 1));
  }
  wait_until_all_came_back();
  for (std::uint16_t i = 0; i < kGuests; ++i) EXPECT_EQ(nodes(DomId(i + 1)), nodes_before) << "guest " << i + 1;
  for (std::uint16_t i = 0; i < kGuests; ++i) EXPECT_EQ(guests_[i].stop(), "") << "guest " << i + 1;
  for (std::uint16_t i = 0; i < kGuests; ++i) expect_closed_without_leak(rig_, DomId(i + 1));
  EXPECT_TRUE(eventually([&] { return rig_.host_descriptors() == descriptors; }))
      << rig_.host_descriptors() << " descriptors, before " << descriptors;
  EXPECT_EQ(rig_.log(), "");
  EXPECT_EQ(rig_.stop(), 0);
  EXPECT_EQ(rig_.log(), "");
}

}  // namespace

void storm_over_processes(std::uint64_t seed, int bursts) {
  Storm storm;
  storm.run(seed, bursts);
}

}  // namespace xblk::scenarios
