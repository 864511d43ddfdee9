// The pool of persistent grants by itself: every lookup structure finds the same grants in a known number of steps, and
// what is given up is the coldest, never one in use.
#include "drivers/blkback/persistent_pool.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <map>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "drivers/base/prng.hpp"
#include "drivers/blkback/persistent_index.hpp"
#include "drivers/env/real/real_env.hpp"
#include "drivers/env/virtual/virtual_env.hpp"

namespace xblk::blkback {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

constexpr std::array kLookups = {blkif::Lookup::list, blkif::Lookup::tree, blkif::Lookup::array};
std::string name_of(blkif::Lookup lookup) {
  return lookup == blkif::Lookup::list ? "list" : lookup == blkif::Lookup::tree ? "tree" : "array";
}

// ---- the structures -------------------------------------------------------------------------------------------------

std::uint64_t steps_to_find(PersistentIndex& index, std::uint32_t gref, const PersistentGrant* expected) {
  std::uint64_t steps = 0;
  EXPECT_EQ(index.find(GrantRef(gref), steps), expected) << gref;
  return steps;
}

class SevenGrants : public testing::Test {
 protected:
  // In this order a search tree is complete without any rotation: three levels.
  static constexpr std::array<std::uint32_t, 7> kOrder = {4, 2, 6, 1, 3, 5, 7};
  void fill(PersistentIndex& index) {
    for (std::size_t i = 0; i < grants_.size(); ++i) {
      grants_[i].gref = GrantRef(kOrder[i]);
      index.insert(grants_[i]);
    }
  }
  std::array<PersistentGrant, 7> grants_;
};

TEST_F(SevenGrants, AListIsSearchedFromItsStart) {
  PersistentIndex index(blkif::Lookup::list);
  EXPECT_EQ(steps_to_find(index, 4, nullptr), 0u);
  fill(index);
  for (std::size_t i = 0; i < grants_.size(); ++i) EXPECT_EQ(steps_to_find(index, kOrder[i], &grants_[i]), i + 1);
  EXPECT_EQ(steps_to_find(index, 8, nullptr), 7u) << "a miss has seen all";
  index.erase(grants_[1]);  // gref 2: the last one takes its place
  EXPECT_EQ(steps_to_find(index, 2, nullptr), 6u);
  EXPECT_EQ(steps_to_find(index, 7, &grants_[6]), 2u);
  index.erase(grants_[6]);
  for (const std::size_t i : {0, 2, 3, 4, 5}) index.erase(grants_[i]);
  EXPECT_EQ(steps_to_find(index, 4, nullptr), 0u);
}

TEST_F(SevenGrants, ATreeIsSearchedFromRootToLeaf) {
  PersistentIndex index(blkif::Lookup::tree);
  EXPECT_EQ(steps_to_find(index, 4, nullptr), 0u);
  fill(index);
  for (std::size_t i = 0; i < grants_.size(); ++i) EXPECT_EQ(steps_to_find(index, kOrder[i], &grants_[i]), 3u);
  EXPECT_EQ(steps_to_find(index, 0, nullptr), 3u);
  EXPECT_EQ(steps_to_find(index, 8, nullptr), 3u);
  for (auto& grant : grants_) index.erase(grant);
  EXPECT_EQ(steps_to_find(index, 4, nullptr), 0u);
}

TEST_F(SevenGrants, AnArrayIsLookedAtOnce) {
  PersistentIndex index(blkif::Lookup::array);
  EXPECT_EQ(steps_to_find(index, 4, nullptr), 1u);
  fill(index);
  for (std::size_t i = 0; i < grants_.size(); ++i) EXPECT_EQ(steps_to_find(index, kOrder[i], &grants_[i]), 1u);
  EXPECT_EQ(steps_to_find(index, 8, nullptr), 1u);
  EXPECT_EQ(steps_to_find(index, 0xffffffff, nullptr), 1u) << "a reference out of every range is only not found";
  index.erase(grants_[0]);
  EXPECT_EQ(steps_to_find(index, 4, nullptr), 1u);
}

TEST(PersistentIndex, TreeOfAFullPoolIsShallow) {
  constexpr std::uint32_t kGrants = 1056;
  std::vector<PersistentGrant> grants(kGrants);
  PersistentIndex index(blkif::Lookup::tree);
  for (std::uint32_t i = 0; i < kGrants; ++i) {  // in rising order, as a frontend grants them
    grants[i].gref = GrantRef(i + 8);
    index.insert(grants[i]);
  }
  for (std::uint32_t i = 0; i < kGrants; ++i)
    EXPECT_LE(steps_to_find(index, i + 8, &grants[i]), 2 * 11u) << "2 log2(n + 1)";
  for (auto& grant : grants) index.erase(grant);
}

TEST(PersistentIndex, AllStructuresAgreeWithAMap) {
  constexpr std::uint64_t kSeed = 3;
  SCOPED_TRACE("seed " + std::to_string(kSeed));
  Prng random(kSeed);
  std::array<PersistentIndex, 3> indexes = {PersistentIndex(kLookups[0]), PersistentIndex(kLookups[1]),
                                            PersistentIndex(kLookups[2])};
  std::array<std::vector<PersistentGrant>, 3> grants;
  for (auto& of_one : grants) of_one = std::vector<PersistentGrant>(64);
  std::map<std::uint32_t, bool> cached;
  for (int step = 0; step < 20000; ++step) {
    const auto gref = static_cast<std::uint32_t>(random.below(64));
    for (std::size_t i = 0; i < indexes.size(); ++i) {
      PersistentGrant& grant = grants[i][gref];
      std::uint64_t steps = 0;
      ASSERT_EQ(indexes[i].find(GrantRef(gref), steps), cached[gref] ? &grant : nullptr) << step;
      grant.gref = GrantRef(gref);
      cached[gref] ? indexes[i].erase(grant) : indexes[i].insert(grant);
    }
    cached[gref] = !cached[gref];
  }
  for (const auto& [gref, present] : cached) {
    for (std::size_t i = 0; present && i < indexes.size(); ++i) indexes[i].erase(grants[i][gref]);
  }
}

// ---- the pool -------------------------------------------------------------------------------------------------------

class PersistentPoolTest : public testing::TestWithParam<blkif::Lookup> {
 protected:
  void open(std::uint32_t cap, blkif::Purge purge, Nanos unused_limit = kForever) {
    PageOptions options;
    options.max_persistent_grants = cap;
    options.lookup = GetParam();
    options.purge = purge;
    options.unused_limit = unused_limit;
    pool_.emplace(env_, options, /*shared=*/true);
  }
  void TearDown() override { (void)pool_->take_all(); }

  PersistentGrant* insert(std::uint32_t gref) {
    return pool_->insert_pinned(GrantRef(gref), MapHandle(gref), nullptr, steps_, wait_);
  }
  PersistentGrant* pin(std::uint32_t gref) { return pool_->pin(GrantRef(gref), steps_, wait_); }
  void unpin(PersistentGrant* grant, Instant now = {}) { pool_->unpin(*grant, now, wait_); }
  // The grants 0 .. n - 1, used in this order, each a nanosecond after the other.
  void fill(std::uint32_t n) {
    for (std::uint32_t i = 0; i < n; ++i) unpin(insert(i), Instant(i));
  }
  // Given up at `now`, at most `slice` of them.
  std::vector<std::uint32_t> give_up(Instant now, std::size_t slice = kPurgeSlice) {
    std::vector<platform::UnmapOp> due(slice);
    due.resize(pool_->take_due(now, due, wait_));
    std::vector<std::uint32_t> grefs;
    for (const auto& op : due) grefs.push_back(op.handle.value());
    return grefs;
  }
  Instant next_due() { return pool_->next_due(wait_); }
  std::uint32_t size() { return pool_->size(wait_); }

  env::VirtualEnv env_;
  std::optional<PersistentPool<env::VirtualEnv>> pool_;
  platform::LockWait wait_;
  std::uint64_t steps_ = 0;
};

TEST_P(PersistentPoolTest, PinsExclusivelyAndKeepsUpToTheCap) {
  open(2, blkif::Purge::off);
  EXPECT_EQ(pin(1), nullptr);
  PersistentGrant* one = insert(1);
  ASSERT_NE(one, nullptr);
  EXPECT_EQ(pin(1), nullptr) << "in use";
  EXPECT_EQ(insert(1), nullptr) << "cached already";
  PersistentGrant* two = insert(2);
  ASSERT_NE(two, nullptr);
  EXPECT_EQ(insert(3), nullptr) << "full";
  EXPECT_EQ(pool_->pinned(), 2u);
  unpin(one);
  EXPECT_EQ(pin(1), one);
  EXPECT_EQ(one->handle, MapHandle(1));
  unpin(one);
  unpin(two);
  EXPECT_EQ(pool_->pinned(), 0u);
  EXPECT_EQ(size(), 2u);
}

TEST_P(PersistentPoolTest, WithoutPurgeNothingIsEverGivenUp) {
  open(10, blkif::Purge::off);
  fill(10);
  EXPECT_EQ(insert(10), nullptr);
  EXPECT_EQ(next_due(), Instant::never());
  EXPECT_THAT(give_up(Instant() + seconds(3600 * 24)), IsEmpty());
  EXPECT_EQ(size(), 10u);
}

TEST_P(PersistentPoolTest, AFullPoolGivesUpTheLeastRecentlyUsedTwentieth) {
  open(100, blkif::Purge::lru);
  fill(100);
  EXPECT_EQ(next_due(), Instant::never()) << "full, but nobody was turned away";
  unpin(pin(1), Instant(200));
  unpin(pin(3), Instant(201));
  EXPECT_EQ(insert(100), nullptr);
  EXPECT_EQ(next_due(), Instant()) << "at once";
  EXPECT_THAT(give_up(Instant(300)), ElementsAre(0, 2, 4, 5, 6));
  EXPECT_THAT(give_up(Instant(300)), IsEmpty());
  EXPECT_EQ(next_due(), Instant::never());
  for (std::uint32_t gref = 100; gref < 105; ++gref) unpin(insert(gref), Instant(301));
  EXPECT_EQ(size(), 100u);
}

TEST_P(PersistentPoolTest, PurgesInSlices) {
  open(100, blkif::Purge::lru);
  fill(100);
  EXPECT_EQ(insert(100), nullptr);
  EXPECT_THAT(give_up(Instant(300), 2), ElementsAre(0, 1));
  EXPECT_EQ(next_due(), Instant()) << "the rest is due";
  unpin(insert(100), Instant(301));  // room is used meanwhile
  EXPECT_THAT(give_up(Instant(302), 2), ElementsAre(2, 3));
  EXPECT_THAT(give_up(Instant(303), 2), ElementsAre(4));
  EXPECT_EQ(size(), 96u);
}

TEST_P(PersistentPoolTest, PurgesNoMoreOftenThanTheInterval) {
  open(20, blkif::Purge::lru);
  fill(20);
  EXPECT_EQ(insert(20), nullptr);
  const Instant first(1000);
  EXPECT_THAT(give_up(first), ElementsAre(0));
  unpin(insert(20), first);
  EXPECT_EQ(insert(21), nullptr);
  EXPECT_EQ(next_due(), first + kLruInterval);
  EXPECT_THAT(give_up(first + kLruInterval + Nanos(-1)), IsEmpty());
  EXPECT_THAT(give_up(first + kLruInterval), ElementsAre(1));
}

TEST_P(PersistentPoolTest, ASmallPoolGivesUpOneAndAPoolWithoutRoomNone) {
  open(3, blkif::Purge::lru);
  fill(3);
  EXPECT_EQ(insert(3), nullptr);
  EXPECT_THAT(give_up(Instant(10)), ElementsAre(0));
  (void)pool_->take_all();
  open(0, blkif::Purge::lru);
  EXPECT_EQ(insert(0), nullptr);
  EXPECT_EQ(next_due(), Instant::never());
  EXPECT_THAT(give_up(Instant(10)), IsEmpty());
}

TEST_P(PersistentPoolTest, AGrantInUseIsNeverGivenUp) {
  open(100, blkif::Purge::lru, seconds(1));
  fill(100);
  std::vector<PersistentGrant*> used;
  for (std::uint32_t gref = 0; gref < 98; ++gref) used.push_back(pin(gref));
  EXPECT_EQ(insert(100), nullptr);
  EXPECT_THAT(give_up(Instant() + seconds(10)), ElementsAre(98, 99)) << "5 are due, 2 are not in use";
  EXPECT_EQ(next_due(), Instant::never());
  EXPECT_EQ(pool_->pinned(), 98u);
  const Instant later = Instant() + seconds(20);
  for (auto* grant : used) unpin(grant, later);
  EXPECT_THAT(give_up(later), IsEmpty()) << "the purge that found nothing cold is over, and these were just used";
}

TEST_P(PersistentPoolTest, UnusedGrantsAreGivenUpAtTheirTime) {
  open(100, blkif::Purge::off, millis(100));
  fill(3);
  EXPECT_EQ(next_due(), Instant(0) + millis(100));
  EXPECT_THAT(give_up(Instant(1) + millis(100)), ElementsAre(0, 1));
  unpin(pin(2), Instant(0) + seconds(5));
  EXPECT_EQ(next_due(), Instant(0) + seconds(5) + millis(100));
  EXPECT_THAT(give_up(Instant(0) + seconds(5) + millis(99)), IsEmpty());
  EXPECT_THAT(give_up(Instant(0) + seconds(5) + millis(100)), ElementsAre(2));
}

TEST_P(PersistentPoolTest, WhatWasGivenUpCanComeBack) {
  open(8, blkif::Purge::lru, millis(1));
  for (int round = 0; round < 100; ++round) {
    fill(8);
    EXPECT_EQ(size(), 8u);
    EXPECT_EQ(give_up(Instant(0) + seconds(1)).size(), 8u);
    EXPECT_EQ(size(), 0u);
    EXPECT_EQ(pin(3), nullptr);
  }
}

TEST_P(PersistentPoolTest, TakesAllAtDisconnect) {
  open(100, blkif::Purge::lru);
  fill(7);
  EXPECT_EQ(pool_->take_all().size(), 7u);
  EXPECT_THAT(pool_->take_all(), IsEmpty()) << "the other rings that share the pool find nothing";
  EXPECT_EQ(size(), 0u);
}

INSTANTIATE_TEST_SUITE_P(Lookups, PersistentPoolTest, testing::ValuesIn(kLookups),
                         [](const auto& test) { return name_of(test.param); });

// Rings on several workers share a pool: they pin, insert and give up at once, and each grant is always in one place.
TEST(SharedPersistentPool, SurvivesManyWorkers) {
  constexpr std::uint64_t kSeed = 7;
  constexpr std::uint32_t kGrefs = 64;
  SCOPED_TRACE("seed " + std::to_string(kSeed));
  for (const blkif::Lookup lookup : kLookups) {
    env::RealEnv env;
    PageOptions options;
    options.max_persistent_grants = kGrefs / 2;
    options.lookup = lookup;
    options.purge = blkif::Purge::lru;
    options.unused_limit = Nanos(50);
    PersistentPool<env::RealEnv> pool(env, options, /*shared=*/true);
    std::array<std::uint64_t, 3> mapped{};    // inserted into the pool, by worker
    std::array<std::uint64_t, 3> unmapped{};  // given up
    std::vector<std::thread> workers;
    for (std::size_t w = 0; w < mapped.size(); ++w) {
      workers.emplace_back([&, w] {
        Prng random(kSeed + w);
        platform::LockWait wait;
        std::uint64_t steps = 0;
        for (int i = 0; i < 20000; ++i) {
          const GrantRef gref(static_cast<std::uint32_t>(random.below(kGrefs)));
          PersistentGrant* grant = pool.pin(gref, steps, wait);
          if (grant == nullptr) {
            grant = pool.insert_pinned(gref, MapHandle(gref.value()), nullptr, steps, wait);
            if (grant != nullptr) ++mapped[w];
          }
          if (random.one_in(16)) {
            std::array<platform::UnmapOp, 4> due;
            unmapped[w] += pool.take_due(Instant(i), due, wait);
          }
          if (grant == nullptr) continue;
          EXPECT_EQ(grant->handle.value(), gref.value()) << "pinned, so nobody gave it away";
          pool.unpin(*grant, Instant(i), wait);
        }
      });
    }
    for (auto& worker : workers) worker.join();
    EXPECT_EQ(pool.pinned(), 0u);
    EXPECT_EQ(mapped[0] + mapped[1] + mapped[2], unmapped[0] + unmapped[1] + unmapped[2] + pool.take_all().size());
    EXPECT_GT(unmapped[0] + unmapped[1] + unmapped[2], 0u);
  }
}

}  // namespace
}  // namespace xblk::blkback
