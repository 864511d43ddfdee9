// The drivers in virtual time: connect, verified I/O, disconnect; nothing leaks; the same seed gives the same run.
#include <gtest/gtest.h>

#include <memory>
#include <ostream>
#include <string>
#include <tuple>

#include "drivers/scenarios/model_load.hpp"
#include "drivers/scenarios/model_rig.hpp"
#include "drivers/scenarios/workload.hpp"

namespace xblk::scenarios {
namespace {

constexpr DomId kGuest{1};
constexpr std::uint64_t kSeed = 20121030;

std::uint64_t back_total(ModelRig& rig, Counter counter) {
  return backend_sample(rig, kGuest).get(counter);
}
std::uint64_t back_total(ModelRig& rig, Gauge gauge) {
  return backend_sample(rig, kGuest).get(gauge);
}

struct Case {
  std::string name;
  blkif::PolicyMap front;
  blkif::PolicyMap back;
};
std::ostream& operator<<(std::ostream& out, const Case& c) {
  return out << c.name;
}

class ModelScenario : public testing::TestWithParam<std::tuple<Case, int, int>> {};

TEST_P(ModelScenario, ConnectsVerifiesAThousandIosAndDisconnectsWithoutALeak) {
  const auto& [c, queues, order] = GetParam();
  VbdOptions options;
  options.front_policy = c.front;
  options.back_policy = c.back;
  options.front_policy["queues"] = options.back_policy["queues"] = std::to_string(queues);
  options.front_policy["ring-page-order"] = std::to_string(order);
  ModelRig rig(kSeed);
  SCOPED_TRACE("seed " + std::to_string(kSeed));
  auto& device = rig.add_guest(kGuest, options);
  ASSERT_TRUE(rig.run_until([&] { return device.connected(); })) << device.failure();
  EXPECT_EQ(device.info().negotiated.queues, queues);
  EXPECT_EQ(device.info().negotiated.ring_page_order, static_cast<std::uint32_t>(order));
  run_workload(rig, device, 1000, kSeed);
  close_and_expect_no_leak(rig, device, kGuest);
  EXPECT_TRUE(rig.log().empty()) << rig.log().front();
}

INSTANTIATE_TEST_SUITE_P(
    Policies, ModelScenario,
    testing::Combine(
        testing::Values(Case{"persistent", {}, {}}, Case{"map", {{"persistent", "0"}}, {{"persistent", "0"}}},
                        Case{"copy", {}, {{"persistent", "0"}, {"data-path", "copy"}}},
                        Case{"persistent_per_device_pools", {{"pools", "per-device"}}, {{"pools", "per-device"}}},
                        Case{"map_direct_only", {{"persistent", "0"}, {"indirect-segments", "0"}}, {}},
                        Case{"persistent_small_cap", {}, {{"max-persistent-grants", "7"}}}),
        testing::Values(1, 3), testing::Values(0, 2)),
    [](const auto& test) {
      return std::get<0>(test.param).name + "_q" + std::to_string(std::get<1>(test.param)) + "_order" +
             std::to_string(std::get<2>(test.param));
    });

// vm.max_map_count or maptrack used up (XSA-300): what cannot be mapped is copied, and no I/O fails for it.
TEST(ModelCapacity, WithoutMappingsLeftRequestsAreCopiedInsteadOfRefused) {
  for (const char* persistent : {"1", "0"}) {
    SCOPED_TRACE(std::string("persistent ") + persistent);
    ModelRig rig(kSeed, {.maptrack_limit = 6});
    auto& device = rig.add_guest(kGuest, {.back_policy = {{"persistent", persistent}}});
    ASSERT_TRUE(rig.run_until([&] { return device.connected(); })) << device.failure();
    run_workload(rig, device, 500, kSeed);
    EXPECT_GT(back_total(rig, Counter::maps), 0u);
    EXPECT_GT(back_total(rig, Counter::map_capacity_errors), 0u);
    EXPECT_EQ(back_total(rig, Counter::map_errors), back_total(rig, Counter::map_capacity_errors));
    EXPECT_GT(back_total(rig, Counter::copies), 0u);
    EXPECT_EQ(back_total(rig, Counter::responses_error), 0u);
    ASSERT_EQ(rig.log().size(), 1u) << "it is said once";
    EXPECT_NE(rig.log().front().find("no mapping capacity left"), std::string::npos) << rig.log().front();
    close_and_expect_no_leak(rig, device, kGuest);
  }
}

TEST(ModelCapacity, ADeviceConnectsAlthoughTheCacheOfAnotherHasTakenAllItCould) {
  ModelRig rig(kSeed, {.maptrack_limit = 40});
  auto& first = rig.add_guest(kGuest, {});
  ASSERT_TRUE(rig.run_until([&] { return first.connected(); })) << first.failure();
  run_workload(rig, first, 500, kSeed);
  EXPECT_EQ(rig.usage().mappings, 35u) << "an eighth is kept for rings";
  auto& second = rig.add_guest(DomId(2), {.front_policy = {{"queues", "4"}}});
  ASSERT_TRUE(rig.run_until([&] { return second.connected(); })) << second.failure();
  run_workload(rig, second, 500, kSeed);
}

TEST(ModelDeterminism, SameSeedSameTraceOtherSeedOtherTrace) {
  const auto run = [](std::uint64_t seed) {
    ModelRig rig(seed);
    auto& device = rig.add_guest(kGuest, {});
    EXPECT_TRUE(rig.run_until([&] { return device.connected(); }));
    return run_workload(rig, device, 300, seed);
  };
  EXPECT_EQ(run(1), run(1));
  EXPECT_NE(run(1), run(2));
}

// The exact cost of the three data paths (seed 003): what a 4 KiB read costs once warm.
struct Cost {
  std::uint64_t maps, unmaps, copies, hits;
};
Cost cost_of_a_hundred_reads(blkif::PolicyMap front, blkif::PolicyMap back) {
  ModelRig rig(7);
  auto& device =
      rig.add_guest(kGuest, {.store = "null:1GiB", .front_policy = std::move(front), .back_policy = std::move(back)});
  EXPECT_TRUE(rig.run_until([&] { return device.connected(); })) << device.failure();
  auto channel = device.open_channel(0).value();
  auto buffer = device.allocate_buffers(Bytes(kPageSize)).value();
  const auto read_one = [&] {
    ASSERT_TRUE(channel->submit({blkfront::IoOp::read, Sectors(0), Sectors(8), buffer.data(), nullptr}));
    channel->commit();
    blkfront::Completion completion;
    ASSERT_TRUE(rig.run_until([&] { return channel->reap(0, {&completion, 1}, Nanos(0)) == 1; }));
    ASSERT_EQ(completion.error, 0);
  };
  for (int i = 0; i < 100; ++i) read_one();  // warm
  const auto at = [&](Counter c) { return back_total(rig, c); };
  const Cost before{at(Counter::maps), at(Counter::unmaps), at(Counter::copies), at(Counter::persistent_hits)};
  for (int i = 0; i < 100; ++i) read_one();
  const Cost cost{at(Counter::maps) - before.maps, at(Counter::unmaps) - before.unmaps,
                  at(Counter::copies) - before.copies, at(Counter::persistent_hits) - before.hits};
  device.free_buffers(buffer);
  return cost;
}

TEST(ModelCost, PersistentMapsNothingOnceWarm) {
  const Cost cost = cost_of_a_hundred_reads({}, {});
  EXPECT_EQ(cost.maps, 0u);
  EXPECT_EQ(cost.unmaps, 0u);
  EXPECT_EQ(cost.copies, 0u);
  EXPECT_EQ(cost.hits, 100u);
}

TEST(ModelCost, MapCostsOneMapAndOneUnmapEach) {
  const Cost cost = cost_of_a_hundred_reads({{"persistent", "0"}}, {});
  EXPECT_EQ(cost.maps, 100u);
  EXPECT_EQ(cost.unmaps, 100u);
  EXPECT_EQ(cost.copies, 0u);
}

TEST(ModelCost, CopyCostsOneCopyEach) {
  const Cost cost = cost_of_a_hundred_reads({}, {{"persistent", "0"}, {"data-path", "copy"}});
  EXPECT_EQ(cost.maps, 0u);
  EXPECT_EQ(cost.unmaps, 0u);
  EXPECT_EQ(cost.copies, 100u);
}

TEST(ModelLifeCycle, ReconnectRenegotiatesUnderLoad) {
  ModelRig rig(kSeed);
  VbdOptions options;
  options.front_policy["queues"] = "1";
  auto& device = rig.add_guest(kGuest, options);
  ASSERT_TRUE(rig.run_until([&] { return device.connected(); }));
  auto channel = device.open_channel(0).value();
  Workload load(device, *channel, {}, kSeed);
  for (int i = 0; i < 2000; ++i) {
    load.turn();
    rig.turn();
  }
  const std::string front = "/local/domain/1/device/vbd/51712";
  const std::string back = std::string(blkback::kBackendRoot) + "/1/51712";
  ASSERT_TRUE(rig.dom0_keys().write(front + "/xblk-policy/queues", "3"));
  ASSERT_TRUE(rig.dom0_keys().write(front + "/xblk-policy/persistent", "0"));
  ASSERT_TRUE(rig.dom0_keys().write(front + "/xblk-policy/reconnect", "1"));
  const std::uint64_t before = load.completed();
  ASSERT_TRUE(rig.run_until([&] {
    load.turn();
    return device.connected() && device.info().negotiated.queues == 3;
  })) << device.failure();
  EXPECT_FALSE(device.info().negotiated.persistent);
  EXPECT_EQ(rig.dom0_keys().read(back + "/xblk-negotiated/persistent").value(), "0");
  EXPECT_EQ(rig.dom0_keys().read(back + "/xblk-negotiated/queues").value(), "3");
  EXPECT_EQ(rig.dom0_keys().read(front + "/xblk-negotiated/queues").value(), "3");
  for (int i = 0; i < 3000; ++i) {
    load.turn();
    rig.turn();
  }
  EXPECT_GT(load.completed(), before);
  load.drain();
  ASSERT_TRUE(rig.run_until([&] {
    load.turn();
    return load.in_flight() == 0;
  }));
  EXPECT_EQ(load.mismatches(), 0u);
  EXPECT_EQ(load.errors(), 0u);
  close_and_expect_no_leak(rig, device, kGuest);
}

TEST(ModelLifeCycle, FromFourQueuesToOneNoStaleKeyIsLeft) {
  ModelRig rig(kSeed);
  VbdOptions options;
  options.front_policy = {{"queues", "4"}, {"ring-page-order", "1"}};
  auto& device = rig.add_guest(kGuest, options);
  ASSERT_TRUE(rig.run_until([&] { return device.connected(); }));
  const std::string front = "/local/domain/1/device/vbd/51712";
  ASSERT_TRUE(rig.dom0_keys().read(front + "/queue-3/ring-ref1"));
  ASSERT_TRUE(rig.dom0_keys().write(front + "/xblk-policy/queues", "1"));
  ASSERT_TRUE(rig.dom0_keys().write(front + "/xblk-policy/ring-page-order", "0"));
  ASSERT_TRUE(rig.dom0_keys().write(front + "/xblk-policy/reconnect", "x"));
  ASSERT_TRUE(rig.run_until([&] { return device.connected() && device.info().negotiated.queues == 1; }))
      << device.failure();
  EXPECT_FALSE(rig.dom0_keys().read(front + "/queue-0/ring-ref0"));
  EXPECT_FALSE(rig.dom0_keys().read(front + "/queue-3/event-channel"));
  EXPECT_FALSE(rig.dom0_keys().read(front + "/multi-queue-num-queues"));
  EXPECT_TRUE(rig.dom0_keys().read(front + "/ring-ref"));
  close_and_expect_no_leak(rig, device, kGuest);
}

TEST(ModelLifeCycle, IndirectRequestsThatAreNoLongerOfferedAreNoLongerUsed) {
  ModelRig rig(kSeed);
  auto& device = rig.add_guest(kGuest, {.front_policy = {{"indirect-segments", "256"}}});
  ASSERT_TRUE(rig.run_until([&] { return device.connected(); }));
  EXPECT_EQ(device.info().negotiated.indirect_segments_max, 256u);
  ASSERT_TRUE(rig.dom0_keys().write(ModelRig::backend_path(kGuest) + "/xblk-policy/indirect-segments", "0"));
  ASSERT_TRUE(rig.dom0_keys().write(ModelRig::frontend_path(kGuest) + "/xblk-policy/reconnect", "1"));
  ASSERT_TRUE(rig.run_until([&] { return device.connected() && device.info().negotiated.indirect_segments_max == 0; }))
      << device.failure();
  EXPECT_FALSE(rig.dom0_keys().read(ModelRig::backend_path(kGuest) + "/feature-max-indirect-segments"));
  run_workload(rig, device, 300, kSeed, {.sectors_max = 256});
  close_and_expect_no_leak(rig, device, kGuest);
}

TEST(ModelLifeCycle, AGuestThatDiesInMidRequestLeavesNothing) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    ModelRig rig(seed);
    auto& device = rig.add_guest(kGuest, {});
    ASSERT_TRUE(rig.run_until([&] { return device.connected(); }));
    {
      auto channel = device.open_channel(0).value();
      Workload load(device, *channel, {}, seed);
      for (std::uint64_t i = 0; i < 100 + seed * 13; ++i) {
        load.turn();
        rig.turn();
      }
    }
    rig.kill_guest(kGuest);
    EXPECT_EQ(rig.usage(), hypervisor::HypervisorUsage{});
    EXPECT_EQ(back_total(rig, Gauge::mappings_in_use), 0u);
    EXPECT_EQ(back_total(rig, Gauge::persistent_cached), 0u);
  }
}

TEST(ModelErrors, ABadStoreOrPolicyCostsOnlyItsOwnDevice) {
  ModelRig rig(kSeed);
  auto& bad_store = rig.add_guest(DomId(1), {.store = "disk:1GiB"});
  auto& bad_policy = rig.add_guest(DomId(2), {.back_policy = {{"data-path", "teleport"}}});
  auto& good = rig.add_guest(DomId(3), {});
  ASSERT_TRUE(rig.run_until([&] { return good.connected(); }));
  EXPECT_FALSE(bad_store.connected());
  EXPECT_FALSE(bad_policy.connected());
  EXPECT_NE(rig.dom0_keys().read(std::string(blkback::kBackendRoot) + "/1/51712/xblk-error").value().find("disk:1GiB"),
            std::string::npos);
  EXPECT_NE(rig.dom0_keys().read(std::string(blkback::kBackendRoot) + "/2/51712/xblk-error").value().find("teleport"),
            std::string::npos);
}

TEST(ModelErrors, ReadOnlyOutOfRangeAndMisalignedIoIsRefusedWithItsErrno) {
  ModelRig rig(kSeed);
  auto& device = rig.add_guest(kGuest, {.mode = "r"});
  ASSERT_TRUE(rig.run_until([&] { return device.connected(); }));
  auto channel = device.open_channel(0).value();
  auto buffer = device.allocate_buffers(Bytes(kPageSize)).value();
  using blkfront::IoOp;
  EXPECT_EQ(channel->submit({IoOp::write, Sectors(0), Sectors(8), buffer.data(), nullptr}).error().code, EROFS);
  EXPECT_EQ(channel->submit({IoOp::read, Sectors(8190), Sectors(8), buffer.data(), nullptr}).error().code, EINVAL);
  EXPECT_EQ(channel->submit({IoOp::read, Sectors(0), Sectors(0), buffer.data(), nullptr}).error().code, EINVAL);
  EXPECT_EQ(channel->submit({IoOp::read, Sectors(0), Sectors(8), buffer.data() + 1, nullptr}).error().code, EINVAL);
  EXPECT_EQ(channel->submit({IoOp::discard, Sectors(0), Sectors(8), nullptr, nullptr}).error().code, EROFS);
  device.free_buffers(buffer);
}

}  // namespace
}  // namespace xblk::scenarios
