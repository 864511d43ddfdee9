#include "drivers/hypervisor/maptrack.hpp"

#include <gtest/gtest.h>

#include <set>
#include <thread>
#include <vector>

#include "drivers/env/real/real_env.hpp"

namespace xblk::hypervisor {
namespace {

class MaptrackTest : public ::testing::TestWithParam<GrantLocks> {
 protected:
  using Track = Maptrack<env::RealEnv, int>;
  static constexpr std::uint32_t kLimit = 10;
  static constexpr std::uint32_t kLists = 4;

  std::optional<int> claim(MapHandle handle) {
    return track_.claim(
        handle, [](int) { return true; }, wait_);
  }

  env::RealEnv env_;
  platform::LockWait wait_;
  Track track_{env_, GetParam(), kLimit, kLists};
};

TEST_P(MaptrackTest, OneWorkerCanUseEveryHandleAndNoMore) {
  std::set<MapHandle> handles;
  for (std::uint32_t i = 0; i < kLimit; ++i) {
    const auto handle = track_.allocate(wait_);
    ASSERT_TRUE(handle) << "stealing from the lists of other workers reaches all of them";
    EXPECT_TRUE(handles.insert(*handle).second);
  }
  EXPECT_EQ(track_.allocate(wait_), std::nullopt);
  EXPECT_EQ(track_.in_use(), kLimit);
  for (MapHandle handle : handles) track_.release(handle, wait_);
  EXPECT_EQ(track_.in_use(), 0u);
}

TEST_P(MaptrackTest, WhoLeavesSomeHandlesForOthersDoesSoExactly) {
  for (std::uint32_t spare = 0; spare <= kLimit; ++spare) {
    SCOPED_TRACE(spare);
    std::vector<MapHandle> handles;
    while (const auto handle = track_.allocate(wait_, spare)) handles.push_back(*handle);
    EXPECT_EQ(handles.size(), kLimit - spare);
    while (const auto handle = track_.allocate(wait_)) handles.push_back(*handle);
    EXPECT_EQ(handles.size(), kLimit);
    for (const MapHandle handle : handles) track_.release(handle, wait_);
  }
}

TEST_P(MaptrackTest, ClaimTakesTheEntryOnce) {
  const MapHandle handle = *track_.allocate(wait_);
  EXPECT_EQ(claim(handle), std::nullopt) << "nothing published yet";
  track_.publish(handle, 42, wait_);
  EXPECT_EQ(track_.claim(
                handle, [](int entry) { return entry == 41; }, wait_),
            std::nullopt);
  EXPECT_EQ(claim(handle), 42);
  EXPECT_EQ(claim(handle), std::nullopt);
  track_.release(handle, wait_);
}

TEST_P(MaptrackTest, StaleHandleNeverNamesItsSuccessor) {
  std::vector<MapHandle> stale;
  for (int round = 0; round < 100; ++round) {
    const MapHandle handle = *track_.allocate(wait_);
    track_.publish(handle, round, wait_);
    for (MapHandle old : stale) ASSERT_EQ(claim(old), std::nullopt);
    ASSERT_EQ(claim(handle), round);
    track_.release(handle, wait_);
    stale.push_back(handle);
  }
  EXPECT_EQ(claim(MapHandle(0xffffffff)), std::nullopt);
  EXPECT_EQ(claim(MapHandle(kLimit)), std::nullopt);
}

TEST_P(MaptrackTest, OfManyClaimantsOneWins) {
  for (int round = 0; round < 200; ++round) {
    const MapHandle handle = *track_.allocate(wait_);
    track_.publish(handle, round, wait_);
    std::atomic<int> winners{0};
    std::vector<std::thread> threads;
    for (int t = 0; t < 3; ++t) {
      threads.emplace_back([&] {
        platform::LockWait wait;
        if (track_.claim(
                handle, [](int) { return true; }, wait))
          ++winners;
      });
    }
    for (auto& thread : threads) thread.join();
    ASSERT_EQ(winners, 1);
    track_.release(handle, wait_);
  }
}

INSTANTIATE_TEST_SUITE_P(Locks, MaptrackTest, ::testing::Values(GrantLocks::coarse, GrantLocks::split),
                         [](const auto& locks) { return locks.param == GrantLocks::coarse ? "coarse" : "split"; });

}  // namespace
}  // namespace xblk::hypervisor
