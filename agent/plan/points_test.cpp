#include "agent/plan/points.hpp"

#include <algorithm>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "agent/plan/capacity.hpp"
#include "drivers/blkif/policy_presets.hpp"

namespace xblk::plan {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pair;

Profile profile_of(const std::string& rest) {
  auto profile = parse_profile("name: t\nstore: null:1GiB\n" + rest, "p.yaml");
  EXPECT_TRUE(profile.has_value()) << (profile ? "" : profile.error().message);
  return profile ? *profile : Profile{};
}

std::vector<std::string> ids(const std::vector<Point>& points) {
  std::vector<std::string> out;
  for (const Point& point : points) out.push_back(point.id);
  return out;
}

TEST(Expand, QuickProfileIsFourPoints) {
  const auto profile = load_profile(XBLK_SOURCE_DIR "/profiles/quick.yaml");
  ASSERT_TRUE(profile.has_value()) << profile.error().message;
  const auto points = expand(*profile);
  EXPECT_THAT(ids(points), ElementsAre("g2-q1-persistent-randread-bs4k-qd32", "g2-q1-nopersistent-randread-bs4k-qd32",
                                       "g2-q2-persistent-randread-bs4k-qd32", "g2-q2-nopersistent-randread-bs4k-qd32"));
  EXPECT_EQ(load_time(points[0]), seconds(4));
  EXPECT_EQ(points[1].guests, 2u);
  EXPECT_THAT(points[1].front, Contains(Pair("persistent", "0")));
  EXPECT_THAT(points[1].back, Contains(Pair("persistent", "0")));
  EXPECT_THAT(points[2].back, Contains(Pair("queues", "2")));
  EXPECT_EQ(*find_setting(points[0].fio, "iodepth"), "32");
  EXPECT_EQ(*find_setting(points[0].fio, "runtime"), "3s");
}

TEST(Expand, PoliciesAreCompleteAndAcceptedByTheDrivers) {
  const auto points = expand(profile_of("fixed: {back.pools: per-device, grant_locks: coarse}\n"));
  ASSERT_EQ(points.size(), 1u);
  const Point& point = points[0];
  const auto front = blkif::parse_front_policy(point.front);
  ASSERT_TRUE(front.has_value()) << front.error().message;
  const auto back = blkif::parse_back_policy(point.back);
  ASSERT_TRUE(back.has_value()) << back.error().message;
  const auto host = blkif::parse_host_policy(point.host);
  ASSERT_TRUE(host.has_value()) << host.error().message;
  EXPECT_EQ(point.front.size(), blkif::to_keys(*front).size()) << "a missing key would be inherited";
  EXPECT_EQ(point.back.size(), blkif::to_keys(*back).size());
  EXPECT_EQ(front->pools, blkif::Pools::per_queue);
  EXPECT_EQ(back->pools, blkif::Pools::per_device);
  EXPECT_EQ(host->grant_locks, blkif::GrantLocks::coarse);
  EXPECT_EQ(*find_setting(point.params, "back.pools"), "per-device");
  EXPECT_EQ(*find_setting(point.params, "front.pools"), "per-queue");
}

TEST(Expand, APresetStandsForWhatTheProfileDoesNotName) {
  const auto points = expand(profile_of("fixed: {queues: 2}\nmatrix: {preset: [none, linux-6.x, seed_2011]}\n"));
  ASSERT_EQ(points.size(), 3u);
  EXPECT_THAT(ids(points), ElementsAre("g1-q2-no-preset-randread-bs4k-qd1", "g1-q2-linux-6-x-randread-bs4k-qd1",
                                       "g1-q2-seed-2011-randread-bs4k-qd1"));
  for (const Point& point : points) {
    const auto front = blkif::parse_front_policy(point.front);
    const auto back = blkif::parse_back_policy(point.back);
    ASSERT_TRUE(front && back);
    EXPECT_EQ(point.front, blkif::to_keys(*front)) << "a missing key would be inherited";
    EXPECT_EQ(point.back, blkif::to_keys(*back));
    EXPECT_EQ(front->queues, 2u) << "what the profile names overrides the preset";
    EXPECT_EQ(back->queues, 2u);
    auto expected = blkif::preset_policy<blkif::BackPolicy>(back->preset);
    expected.queues = 2;
    EXPECT_EQ(*back, expected) << "each end has its own values";
  }
  auto first = points[0].params;
  auto last = points[2].params;
  std::erase_if(first, [](const auto& param) { return param.first == "preset"; });
  std::erase_if(last, [](const auto& param) { return param.first == "preset"; });
  EXPECT_EQ(first, last) << "presets can be compared with each other";
  EXPECT_EQ(find_setting(points[2].params, "persistent"), nullptr);
}

TEST(Expand, EachEndMayHaveAPresetOfItsOwn) {
  const auto points = expand(profile_of("fixed: {back.preset: seed-2011, front.polling: adaptive}\n"));
  EXPECT_EQ(points[0].front.at("preset"), "none");
  EXPECT_EQ(points[0].front.at("indirect-segments"), "32");
  EXPECT_EQ(points[0].back.at("preset"), "seed-2011");
  EXPECT_EQ(points[0].back.at("polling"), "event") << "the preset's, not the default";
  EXPECT_EQ(*find_setting(points[0].params, "front.polling"), "adaptive");
  EXPECT_EQ(find_setting(points[0].params, "back.polling"), nullptr) << "the preset stands for it";
}

TEST(Expand, AProfileThatNamesNoPresetHasNone) {
  const auto points = expand(profile_of(""));
  EXPECT_EQ(find_setting(points[0].params, "preset"), nullptr);
  EXPECT_EQ(points[0].front, blkif::to_keys(blkif::FrontPolicy{}));
}

TEST(Expand, OneEndEqualToTheOtherIsTheSamePointAsBoth) {
  const auto split = expand(profile_of("fixed: {front.persistent: on}\n"));
  const auto both = expand(profile_of("fixed: {persistent: on}\n"));
  EXPECT_EQ(split[0].params, both[0].params);
  EXPECT_EQ(split[0].id, both[0].id);
}

TEST(Expand, ParametersAreTheSameWhereverTheyStand) {
  const auto fixed = expand(profile_of("fixed: {fio.rwmixread: 70, rw: randrw, blocksize: 4096}\n"));
  const auto section = expand(profile_of("fixed: {rw: randrw}\nfio: {rwmixread: 70}\n"));
  EXPECT_EQ(fixed[0].params, section[0].params);
}

TEST(Expand, DurationIsNoPartOfTheIdentity) {
  const auto brief = expand(profile_of("fio: {runtime: 1s, time_based: on}\n"));
  const auto longer = expand(profile_of("fio: {runtime: 9s, ramp_time: 2s, time_based: on}\n"));
  EXPECT_EQ(brief[0].params, longer[0].params);
}

TEST(Expand, ExcludeAndInclude) {
  const auto points = expand(profile_of(R"(
matrix: {queues: [1, 2], persistent: [on, off]}
exclude: [{queues: 2, persistent: off}]
include: [{queues: 4, iodepth: [8, 16]}]
)"));
  EXPECT_THAT(ids(points), ElementsAre("g1-q1-persistent-randread-bs4k-qd1", "g1-q1-nopersistent-randread-bs4k-qd1",
                                       "g1-q2-persistent-randread-bs4k-qd1", "g1-q4-persistent-randread-bs4k-qd8",
                                       "g1-q4-persistent-randread-bs4k-qd16", "g1-q4-nopersistent-randread-bs4k-qd8",
                                       "g1-q4-nopersistent-randread-bs4k-qd16"));
}

TEST(Expand, IdsAreUniqueAndFitForFileNames) {
  const auto points = expand(profile_of("matrix: {fio.bssplit: [\"4k/50:8k/50\", \"4k_50:8k/50\"]}\n"));
  EXPECT_THAT(ids(points), ElementsAre("g1-q1-persistent-randread-bs4k-qd1-bssplit-4k_50_8k_50",
                                       "g1-q1-persistent-randread-bs4k-qd1-bssplit-4k_50_8k_50-2"));
}

TEST(Schedule, InterleavedVisitsAllPointsInEachBlock) {
  const auto visits = schedule(5, 4, Order::interleaved, 7);
  ASSERT_EQ(visits.size(), 20u);
  std::set<std::vector<std::size_t>> orders;
  for (std::size_t repeat = 0; repeat < 4; ++repeat) {
    std::vector<std::size_t> block;
    for (std::size_t i = 0; i < 5; ++i) {
      EXPECT_EQ(visits[repeat * 5 + i].repeat, repeat);
      block.push_back(visits[repeat * 5 + i].point_index);
    }
    orders.insert(block);
    std::sort(block.begin(), block.end());
    EXPECT_THAT(block, ElementsAre(0, 1, 2, 3, 4));
  }
  EXPECT_GT(orders.size(), 1u) << "the order must change between blocks";
  EXPECT_EQ(visits, schedule(5, 4, Order::interleaved, 7));
  EXPECT_NE(visits, schedule(5, 4, Order::interleaved, 8));
}

TEST(Schedule, SequentialKeepsRepeatsTogether) {
  EXPECT_THAT(schedule(2, 2, Order::sequential, 1), ElementsAre(Visit{0, 0}, Visit{0, 1}, Visit{1, 0}, Visit{1, 1}));
}

const StoreSpec kNullStore = parse_store("null:1GiB").value();
constexpr host::Limits kMachine{.max_map_count = 65'530, .open_files = 1024};

std::vector<std::string> exceeded(const Capacity& capacity) {
  std::vector<std::string> out;
  for (const Limit& limit : limits_of(capacity, kMachine)) {
    if (limit.exceeded()) out.push_back(limit.name);
  }
  return out;
}

TEST(CapacityTest, DefaultRingNeeds1056Grants) {
  // blkback's cap of 1056 is one ring of 32 slots x (32 segments + 1 indirect page).
  const auto points = expand(profile_of("fixed: {guests: 2, queues: 2}\n"));
  const Capacity capacity = capacity_of(points[0], kNullStore);
  EXPECT_EQ(capacity.guest_grants, 2u * (1 + 1056));
  EXPECT_EQ(capacity.guest_memory, Bytes(2u * 1057 * 4096));
  EXPECT_EQ(capacity.host_mappings, 2u * 2 * (1 + 1056));
  EXPECT_THAT(exceeded(capacity), ElementsAre());
}

TEST(CapacityTest, CopyMapsOnlyTheRings) {
  const auto points = expand(profile_of("fixed: {persistent: off, data-path: copy, queues: 3}\n"));
  EXPECT_EQ(capacity_of(points[0], kNullStore).host_mappings, 3u);
}

TEST(CapacityTest, GrantTableAndMappings) {
  // 4 queues x 512 slots x (32 + 1) = 67,584, twice the grant table.
  const auto points = expand(profile_of("fixed: {queues: 4, ring-page-order: 4}\n"));
  const Capacity capacity = capacity_of(points[0], kNullStore);
  EXPECT_EQ(capacity.guest_grants, 4u * (16 + 512 * 33));
  EXPECT_THAT(exceeded(capacity), ElementsAre("vm.max_map_count", "max_grant_frames"));
  EXPECT_THAT(warning_of(limits_of(capacity, kMachine)[1]),
              HasSubstr("max_grant_frames: needs 67648 of 32768: beyond it I/Os wait"));
}

// Single-page mappings of 64 devices x 4 queues x 1,056 grants (architecture, decision 10).
TEST(CapacityTest, ManyDevicesRunOutOfMappings) {
  const auto points = expand(profile_of("fixed: {guests: 64, queues: 4}\n"));
  const Capacity capacity = capacity_of(points[0], kNullStore);
  EXPECT_EQ(capacity.host_mappings, 64u * 4 * 1057);
  EXPECT_THAT(exceeded(capacity), ElementsAre("vm.max_map_count", "RLIMIT_NOFILE"));
}

TEST(CapacityTest, NodesOfAFrontend) {
  // Of each queue its directory, its event channel and its ring pages; 64 x (1 + 1 + 16) alone are 1,152.
  const auto one = capacity_of(expand(profile_of("fixed: {queues: 1}\n"))[0], kNullStore);
  const auto two = capacity_of(expand(profile_of("fixed: {queues: 2}\n"))[0], kNullStore);
  const auto three = capacity_of(expand(profile_of("fixed: {queues: 3}\n"))[0], kNullStore);
  EXPECT_EQ(three.guest_nodes - two.guest_nodes, 3u);
  EXPECT_EQ(three.largest_node - two.largest_node, sizeof "queue-2");
  EXPECT_GT(two.guest_nodes, one.guest_nodes);
  const auto many =
      capacity_of(expand(profile_of("fixed: {queues: 64, ring-page-order: 4, indirect-segments: 0}\n"))[0], kNullStore);
  EXPECT_GT(many.guest_nodes, 1152u);
  EXPECT_THAT(exceeded(many), testing::IsSupersetOf({"xenstored entries", "xenstored transaction-nodes"}));
}

TEST(CapacityTest, OpenFilesGrowWithTheStore) {
  const auto point = expand(profile_of("fixed: {queues: 4}\n"))[0];
  const auto files = [&](const std::string& store) {
    return capacity_of(point, parse_store(store).value()).host_open_files;
  };
  EXPECT_EQ(files("file:1GiB:/d") - files("ram:1GiB"), 4u * 2);
  EXPECT_EQ(files("throttled:70MB/s:1ms:null:1GiB") - files("null:1GiB"), 4u * 2);
}

TEST(CapacityTest, TheWorstPointOfEachLimitIsNamed) {
  const auto points = expand(profile_of("matrix: {queues: [1, 8], data-path: [map, copy], persistent: [off]}\n"));
  const auto worst = worst_limits(points, kNullStore, kMachine);
  ASSERT_EQ(worst.size(), limits_of(capacity_of(points[0], kNullStore), kMachine).size());
  EXPECT_EQ(worst[0].limit.name, "vm.max_map_count");
  EXPECT_EQ(worst[0].point, "g1-q8-nopersistent-randread-bs4k-qd1");
}

TEST(Quantities, Sizes) {
  EXPECT_EQ(parse_size("4k"), Bytes(4096));
  EXPECT_EQ(parse_size("1GiB"), Bytes(1u << 30));
  EXPECT_EQ(parse_size("512"), Bytes(512));
  EXPECT_EQ(format_size(Bytes(4096)), "4k");
  EXPECT_EQ(format_size(Bytes(1536)), "1536");
  EXPECT_EQ(format_size(Bytes(0)), "0");
  for (const char* bad : {"", "k", "-1", "4x", "4k ", "1.5m", "99999999999999999999", "99999999999999g"}) {
    EXPECT_EQ(parse_size(bad), std::nullopt) << bad;
  }
}

TEST(Quantities, Durations) {
  EXPECT_EQ(parse_duration("3"), seconds(3));
  EXPECT_EQ(parse_duration("500ms"), millis(500));
  EXPECT_EQ(parse_duration("2m"), seconds(120));
  for (const char* bad : {"", "s", "3 s", "-3s", "3y", "9999999999999999999s"}) {
    EXPECT_EQ(parse_duration(bad), std::nullopt) << bad;
  }
}

}  // namespace
}  // namespace xblk::plan
