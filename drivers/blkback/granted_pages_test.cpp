// The data paths against a hypervisor that fails where the test says: nothing leaks, every count is exact.
#include "drivers/blkback/granted_pages.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <new>
#include <optional>
#include <ostream>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "drivers/blkback/scripted_grants_testing.hpp"

namespace {
bool no_pages_left = false;
}  // namespace

// The allocation of free pages, so that it can fail on demand.
void* operator new(std::size_t size, std::align_val_t alignment, const std::nothrow_t&) noexcept {
  return no_pages_left ? nullptr : ::operator new(size, alignment);
}

namespace xblk::blkback {
namespace {

using platform::Access;
using platform::GrantStatus;
using testing::Each;
using testing::ElementsAre;
using testing::IsEmpty;

constexpr std::uint32_t kFirstGref = 8;
constexpr std::array kLookups = {blkif::Lookup::list, blkif::Lookup::tree, blkif::Lookup::array};
std::string name_of(blkif::Lookup lookup) {
  return lookup == blkif::Lookup::list ? "list" : lookup == blkif::Lookup::tree ? "tree" : "array";
}
using Request = std::vector<blkif::Segment>;

// Whole pages under `count` references, from the n-th one on.
Request pages_of(std::size_t count, std::uint32_t from = 0) {
  Request segments;
  for (std::uint32_t i = 0; i < count; ++i) {
    segments.push_back({GrantRef(kFirstGref + from + i), 0, kSectorsPerPage - 1});
  }
  return segments;
}

PageOptions options_of(DataPath path) {
  PageOptions options;
  options.path = path;
  options.max_persistent_grants = 1056;
  options.max_free_pages = 1024;
  options.unmap_batch = 32;
  return options;
}

class GrantedPagesTest : public testing::Test {
 protected:
  void open(const PageOptions& options) {
    pools_.emplace(env_, options, /*shared=*/false);
    pages_.emplace(back_, GrantedPages<ScriptedPlatform>::Config{DomId(1), options}, *pools_, counters_);
  }
  void TearDown() override {
    no_pages_left = false;
    pages_->drop_pools();
    pages_->publish_gauges();
    EXPECT_THAT(back_.mapped, IsEmpty());
    EXPECT_EQ(count(Counter::maps), count(Counter::unmaps));
    for (std::size_t g = 0; g < kGaugeCount; ++g) {
      EXPECT_EQ(counters_.get(static_cast<Gauge>(g)), 0u) << kGaugeNames[g];
    }
  }
  // A write request of the frontend: the store reads the pages.
  [[nodiscard]] bool acquire(const Request& segments, HeldPages& held) {
    return pages_->acquire(segments, false, held);
  }
  void release(HeldPages& held) { EXPECT_TRUE(pages_->release(false, held)); }
  void serve(const Request& segments) {
    HeldPages held;
    ASSERT_TRUE(acquire(segments, held));
    expect_own_data(segments, held);
    release(held);
    pages_->flush_unmaps();
  }
  // Every piece shows the page of its own reference.
  void expect_own_data(const Request& segments, const HeldPages& held) {
    ASSERT_EQ(held.pieces().size(), segments.size());
    for (std::size_t i = 0; i < segments.size(); ++i) {
      EXPECT_EQ(*held.pieces()[i].address, ScriptedGrants::pattern_of(segments[i].gref)) << "segment " << i;
    }
  }
  // Only what the pool caches is mapped, and nobody uses it.
  void expect_nothing_held() {
    EXPECT_EQ(pools_->persistent.pinned(), 0u);
    EXPECT_EQ(back_.mapped.size(), pools_->persistent.size(wait_));
    EXPECT_EQ(count(Counter::maps), count(Counter::unmaps) + pools_->persistent.size(wait_));
    pages_->publish_gauges();
    EXPECT_EQ(counters_.get(Gauge::mappings_in_use), 0u);
  }
  std::uint64_t count(Counter c) const { return counters_.get(c); }

  env::VirtualEnv env_;
  hypervisor::Hypervisor<env::VirtualEnv> hypervisor_{env_};
  ScriptedGrants back_{hypervisor_};
  QueueCounters counters_;
  platform::LockWait wait_;
  std::optional<Pools<env::VirtualEnv>> pools_;
  std::optional<GrantedPages<ScriptedPlatform>> pages_;
};

// ---- refusals (XSA-361, -362, -365, -371) ---------------------------------------------------------------------------

struct Path {
  std::string name;
  DataPath path = DataPath::map;
  Bytes hybrid_threshold{};
  std::uint32_t cap = 1056;
  std::size_t warm = 0;  // segments that the persistent pool has cached before
};
std::ostream& operator<<(std::ostream& out, const Path& path) {
  return out << path.name;
}

class RefusedGrant : public GrantedPagesTest,
                     public testing::WithParamInterface<std::tuple<Path, blkif::Lookup, std::size_t>> {
 protected:
  void SetUp() override {
    const auto& [path, lookup, segments] = GetParam();
    options_ = options_of(path.path);
    options_.lookup = lookup;
    options_.hybrid_threshold = path.hybrid_threshold;
    options_.max_persistent_grants = path.cap;
    request_ = pages_of(segments);
    cached_ = std::min(path.warm, segments);
    start();
  }
  // A pool that has cached the first segments of the request, and nothing else.
  void start() {
    if (pages_) pages_->drop_pools();
    open(options_);
    back_.map_refusals = back_.copy_refusals = {};
    if (cached_ > 0) serve(pages_of(cached_));
  }
  // What is cached is not mapped again, so nobody looks at its grant.
  void expect_failure_unless(bool all_found) {
    HeldPages held;
    EXPECT_EQ(acquire(request_, held), all_found);
    if (all_found) release(held);
    EXPECT_TRUE(held.empty());
    pages_->flush_unmaps();
    expect_nothing_held();
    back_.map_refusals = back_.copy_refusals = {};
    serve(request_);
    expect_nothing_held();
  }
  PageOptions options_;
  Request request_;
  std::size_t cached_ = 0;
};

TEST_P(RefusedGrant, AtAnyPositionFailsTheRequestAndHoldsNothing) {
  constexpr std::array kStatuses = {GrantStatus::bad_gntref, GrantStatus::general_error, GrantStatus::bad_page,
                                    GrantStatus::permission_denied, GrantStatus::eagain};
  for (std::size_t bad = 0; bad < request_.size(); ++bad) {
    SCOPED_TRACE("refused: segment " + std::to_string(bad));
    start();
    back_.map_refusals = back_.copy_refusals = {{request_[bad].gref, kStatuses[bad % kStatuses.size()]}};
    expect_failure_unless(bad < cached_);
  }
}

TEST_P(RefusedGrant, OfAllSegmentsButOneFailsTheRequestAndHoldsNothing) {
  for (std::size_t good = 0; good < request_.size(); ++good) {
    SCOPED_TRACE("not refused: segment " + std::to_string(good));
    start();
    for (const auto& segment : request_) back_.map_refusals[segment.gref] = GrantStatus::bad_gntref;
    back_.map_refusals.erase(request_[good].gref);
    back_.copy_refusals = back_.map_refusals;
    expect_failure_unless(request_.size() == 1 || cached_ == request_.size());
  }
}

TEST_F(GrantedPagesTest, OnlyLackOfSpaceIsAReasonToCopyInstead) {
  open(options_of(DataPath::map));
  back_.map_refusals = {{GrantRef(kFirstGref), GrantStatus::bad_gntref}};
  HeldPages held;
  EXPECT_FALSE(acquire(pages_of(1), held));
  EXPECT_THAT(back_.copy_batches, IsEmpty());
}

// Out of mapping capacity (XSA-300, XSA-362): the page is copied instead, wherever in the batch it is.
TEST_P(RefusedGrant, ForLackOfSpaceIsCopiedInstead) {
  for (std::size_t full = 0; full < request_.size(); ++full) {
    SCOPED_TRACE("no space for segment " + std::to_string(full));
    start();
    back_.map_refusals = {{request_[full].gref, GrantStatus::no_device_space}};
    serve(request_);
    expect_nothing_held();
  }
}

TEST_P(RefusedGrant, ForLackOfSpaceAndOfMemoryFailsTheRequestAndHoldsNothing) {
  pools_->free_pages.drop();
  no_pages_left = true;
  for (const auto& segment : request_) back_.map_refusals[segment.gref] = GrantStatus::no_device_space;
  HeldPages held;
  EXPECT_EQ(acquire(request_, held), cached_ == request_.size());
  release(held);
  pages_->flush_unmaps();
  expect_nothing_held();
  no_pages_left = false;
  back_.map_refusals = {};
  serve(request_);
}

const std::vector<Path> kPaths = {
    {"map", DataPath::map},
    {"copy", DataPath::copy},
    {"hybrid_mapped", DataPath::hybrid, Bytes(0)},
    {"hybrid_copied", DataPath::hybrid, Bytes(1u << 20)},
    {"persistent", DataPath::persistent},
    {"persistent_partly_cached", DataPath::persistent, {}, 1056, 5},
    {"persistent_over_the_cap", DataPath::persistent, {}, 3},
    {"persistent_without_room", DataPath::persistent, {}, 0},
};
// 25 segments: more than one batch of Linux, where the error of one was lost by the next (XSA-365).
INSTANTIATE_TEST_SUITE_P(Paths, RefusedGrant,
                         testing::Combine(testing::ValuesIn(kPaths), testing::ValuesIn(kLookups),
                                          testing::Values(1, 11, 25)),
                         [](const auto& test) {
                           return std::get<0>(test.param).name + "_" + name_of(std::get<1>(test.param)) + "_" +
                                  std::to_string(std::get<2>(test.param)) + "_segments";
                         });

// ---- the same reference twice, and one that is granted anew ---------------------------------------------------------

class SameGref : public GrantedPagesTest, public testing::WithParamInterface<blkif::Lookup> {
 protected:
  void SetUp() override {
    PageOptions options = options_of(DataPath::persistent);
    options.lookup = GetParam();
    open(options);
  }
};

TEST_P(SameGref, InTwoLiveRequestsIsServedTwiceAndCachedOnce) {
  HeldPages first;
  HeldPages second;
  ASSERT_TRUE(acquire(pages_of(1), first));
  ASSERT_TRUE(acquire(pages_of(1), second));
  expect_own_data(pages_of(1), second);
  EXPECT_EQ(count(Counter::persistent_misses), 1u);
  EXPECT_EQ(count(Counter::persistent_overflows), 1u);
  EXPECT_EQ(back_.mapped.size(), 2u);
  release(second);  // in any order
  pages_->flush_unmaps();
  EXPECT_EQ(back_.mapped.size(), 1u);
  release(first);
  expect_nothing_held();
  serve(pages_of(1));
  EXPECT_EQ(count(Counter::persistent_hits), 1u);
}

TEST_P(SameGref, TwiceInOneRequestIsServedTwiceAndCachedOnce) {
  const Request twice = {pages_of(1)[0], pages_of(1)[0], pages_of(1, 1)[0]};
  serve(twice);
  EXPECT_EQ(count(Counter::persistent_misses), 2u);
  EXPECT_EQ(count(Counter::persistent_overflows), 1u);
  expect_nothing_held();
  serve(twice);  // one of the two is found, the other one mapped
  EXPECT_EQ(count(Counter::persistent_hits), 2u);
  EXPECT_EQ(count(Counter::maps), 4u);
  expect_nothing_held();
}

// A backend cannot see that a frontend granted another page under a number that it keeps mapped; a frontend must not do
// it while the backend holds the page (end_access() fails). Whoever does it anyway gets the old page, and nothing
// worse.
TEST_P(SameGref, GrantedAnewIsServedFromThePageThatIsMapped) {
  serve(pages_of(1));
  back_.regrant(GrantRef(kFirstGref), std::byte{0xEE});
  serve(pages_of(1));
  EXPECT_EQ(count(Counter::maps), 1u);
}

INSTANTIATE_TEST_SUITE_P(Lookups, SameGref, testing::ValuesIn(kLookups),
                         [](const auto& test) { return name_of(test.param); });

// ---- the paths ------------------------------------------------------------------------------------------------------

TEST_F(GrantedPagesTest, PersistentMapsOnceForBothDirections) {
  open(options_of(DataPath::persistent));
  serve(pages_of(11));
  EXPECT_THAT(back_.accesses, Each(Access::read_write)) << "a read may come next";
  serve(pages_of(11));
  EXPECT_THAT(back_.map_batches, ElementsAre(11));
  EXPECT_EQ(count(Counter::persistent_misses), 11u);
  EXPECT_EQ(count(Counter::persistent_hits), 11u);
  EXPECT_EQ(count(Counter::unmap_calls), 0u);
  EXPECT_EQ(count(Counter::persistent_lookup_steps), 11u + 11u + 11u) << "not found; not cached meanwhile; found";
}

TEST_F(GrantedPagesTest, MapAsksForNoMoreAccessThanTheRequestNeeds) {
  open(options_of(DataPath::map));
  HeldPages held;
  ASSERT_TRUE(pages_->acquire(pages_of(2), /*to_frontend=*/false, held));
  EXPECT_THAT(back_.accesses, ElementsAre(Access::read_only, Access::read_only));
  release(held);
  ASSERT_TRUE(pages_->acquire(pages_of(1), /*to_frontend=*/true, held));
  EXPECT_EQ(back_.accesses.back(), Access::read_write);
  EXPECT_TRUE(pages_->release(true, held));
}

TEST_F(GrantedPagesTest, CopyMovesTheSectorsOfEachSegmentAndNoMore) {
  open(options_of(DataPath::copy));
  const Request segments = {{GrantRef(kFirstGref), 2, 4}, {GrantRef(kFirstGref + 1), 7, 7}};
  HeldPages held;
  ASSERT_TRUE(pages_->acquire(segments, /*to_frontend=*/true, held));
  EXPECT_THAT(back_.copy_batches, IsEmpty()) << "what the store overwrites is not fetched";
  ASSERT_EQ(held.pieces()[0].bytes, 3 * kSectorSize);
  ASSERT_EQ(held.pieces()[1].bytes, kSectorSize);
  for (const auto& piece : held.pieces()) std::fill_n(piece.address, piece.bytes, std::byte{0xDD});
  EXPECT_TRUE(pages_->release(true, held));
  EXPECT_THAT(back_.copy_batches, ElementsAre(2));
  EXPECT_EQ(count(Counter::copied_bytes), 4 * kSectorSize);
  for (const auto& segment : segments) {
    const std::byte* page = back_.page(segment.gref);
    for (std::size_t sector = 0; sector < kSectorsPerPage; ++sector) {
      const bool inside = sector >= segment.first_sector && sector <= segment.last_sector;
      const std::byte expected = inside ? std::byte{0xDD} : ScriptedGrants::pattern_of(segment.gref);
      EXPECT_EQ(std::count(page + sector * kSectorSize, page + (sector + 1) * kSectorSize, expected), kSectorSize);
    }
  }
}

TEST_F(GrantedPagesTest, AReadWhoseGrantIsTakenBackMeanwhileFailsAndReturnsItsPages) {
  open(options_of(DataPath::copy));
  HeldPages held;
  ASSERT_TRUE(pages_->acquire(pages_of(3), /*to_frontend=*/true, held));
  back_.copy_refusals = {{GrantRef(kFirstGref + 1), GrantStatus::bad_gntref}};
  EXPECT_FALSE(pages_->release(true, held));
  EXPECT_TRUE(held.empty());
  EXPECT_EQ(pools_->free_pages.size(wait_), 3u);
  EXPECT_EQ(count(Counter::copies), 2u);
  EXPECT_EQ(count(Counter::copy_errors), 1u);
}

TEST_F(GrantedPagesTest, HybridCopiesUpToTheThresholdAndMapsAboveIt) {
  PageOptions options = options_of(DataPath::hybrid);
  options.hybrid_threshold = Bytes(2 * kPageSize);
  open(options);
  serve(pages_of(2));
  EXPECT_EQ(count(Counter::copies), 2u);
  EXPECT_EQ(count(Counter::maps), 0u);
  // The length of the data counts, not the pages: three pages of one sector each are small.
  serve({{GrantRef(kFirstGref), 0, 0}, {GrantRef(kFirstGref + 1), 1, 1}, {GrantRef(kFirstGref + 2), 2, 2}});
  EXPECT_EQ(count(Counter::copies), 5u);
  Request larger = pages_of(3);
  larger[2].last_sector = 0;
  serve(larger);
  EXPECT_EQ(count(Counter::copies), 5u);
  EXPECT_EQ(count(Counter::maps), 3u);
  std::array<std::byte, kPageSize> descriptors;
  ASSERT_TRUE(pages_->fetch_page(GrantRef(kFirstGref), descriptors));
  EXPECT_EQ(count(Counter::copies), 6u) << "an indirect page is small too";
}

TEST_F(GrantedPagesTest, FetchedPageIsAPrivateCopy) {
  for (const DataPath path : {DataPath::persistent, DataPath::map, DataPath::copy}) {
    open(options_of(path));
    std::array<std::byte, kPageSize> copy{};
    EXPECT_TRUE(pages_->fetch_page(GrantRef(kFirstGref), copy));
    EXPECT_THAT(copy, Each(ScriptedGrants::pattern_of(GrantRef(kFirstGref))));
    back_.map_refusals = back_.copy_refusals = {{GrantRef(kFirstGref + 1), GrantStatus::bad_gntref}};
    EXPECT_FALSE(pages_->fetch_page(GrantRef(kFirstGref + 1), copy));
    pages_->flush_unmaps();
    expect_nothing_held();
    pages_->drop_pools();
  }
}

TEST_F(GrantedPagesTest, FreePagesAreKeptUpToTheirCap) {
  PageOptions options = options_of(DataPath::copy);
  options.max_free_pages = 4;
  open(options);
  serve(pages_of(11));
  EXPECT_EQ(pools_->free_pages.size(wait_), 4u);
}

// ---- unmap batches --------------------------------------------------------------------------------------------------

struct Unmapping {
  std::uint32_t batch;
  std::vector<std::size_t> requests;    // pages of requests released one after another
  std::vector<std::size_t> at_release;  // pages of each unmap meanwhile
  std::vector<std::size_t> at_flush;    // ... and by flush_unmaps()
};

TEST_F(GrantedPagesTest, UnmapsArePutTogether) {
  const std::vector<Unmapping> cases = {
      {1, {11, 1, 11}, {11, 1, 11}, {}},  // a call per request, whatever its size
      {32, {11, 11, 11}, {32}, {1}},       {32, {1, 1, 1}, {}, {3}},      {32, {16, 16}, {32}, {}},
      {4, {11, 11}, {4, 4, 4, 4, 4}, {2}}, {2, {1, 1, 1, 1}, {2, 2}, {}}, {256, {1}, {}, {1}},
  };
  for (std::size_t i = 0; i < cases.size(); ++i) {
    SCOPED_TRACE("case " + std::to_string(i));
    PageOptions options = options_of(DataPath::map);
    options.unmap_batch = cases[i].batch;
    open(options);
    back_.unmap_batches.clear();
    std::vector<HeldPages> held(cases[i].requests.size());
    for (std::size_t r = 0; r < held.size(); ++r) ASSERT_TRUE(acquire(pages_of(cases[i].requests[r]), held[r]));
    for (auto& pages : held) release(pages);
    EXPECT_EQ(std::exchange(back_.unmap_batches, {}), cases[i].at_release);
    pages_->flush_unmaps();
    EXPECT_EQ(std::exchange(back_.unmap_batches, {}), cases[i].at_flush);
    pages_->flush_unmaps();
    EXPECT_THAT(back_.unmap_batches, IsEmpty()) << "nothing is left, so nothing is called";
    expect_nothing_held();
  }
}

TEST_F(GrantedPagesTest, DisconnectUnmapsWhatARoundHasLeft) {
  open(options_of(DataPath::map));
  HeldPages held;
  ASSERT_TRUE(acquire(pages_of(3), held));
  release(held);
  pages_->publish_gauges();
  EXPECT_EQ(counters_.get(Gauge::mappings_in_use), 3u) << "released, but still mapped";
  pages_->drop_pools();
  EXPECT_THAT(back_.unmap_batches, ElementsAre(3));
}

// ---- giving grants up -----------------------------------------------------------------------------------------------

TEST_F(GrantedPagesTest, UnusedGrantsLeaveInSlicesOfOneUnmapEach) {
  PageOptions options = options_of(DataPath::persistent);
  options.unused_limit = seconds(60);
  open(options);
  EXPECT_EQ(pages_->next_maintenance(), Instant::never());
  serve(pages_of(70));
  const Instant due = env_.now() + seconds(60);
  EXPECT_EQ(pages_->next_maintenance(), due);
  EXPECT_FALSE(pages_->maintain(due + Nanos(-1)));
  EXPECT_EQ(count(Counter::persistent_purged), 0u);
  EXPECT_TRUE(pages_->maintain(due));
  EXPECT_TRUE(pages_->maintain(due));
  EXPECT_FALSE(pages_->maintain(due));
  EXPECT_FALSE(pages_->maintain(due));
  EXPECT_THAT(back_.unmap_batches, ElementsAre(32, 32, 6));
  EXPECT_EQ(count(Counter::persistent_purged), 70u);
  EXPECT_EQ(counters_.get(Gauge::persistent_cached), 0u) << "an idle ring publishes it too";
  EXPECT_EQ(pages_->next_maintenance(), Instant::never());
  serve(pages_of(70));
  EXPECT_EQ(count(Counter::persistent_misses), 140u);
}

TEST_F(GrantedPagesTest, AFullSliceIsNoPromiseOfMore) {
  PageOptions options = options_of(DataPath::persistent);
  options.unused_limit = seconds(60);
  open(options);
  serve(pages_of(kPurgeSlice));
  env_.advance_to(env_.now() + seconds(60));
  serve(pages_of(1, kPurgeSlice));
  EXPECT_FALSE(pages_->maintain(env_.now()));
  EXPECT_EQ(count(Counter::persistent_purged), kPurgeSlice);
}

TEST_F(GrantedPagesTest, AGrantThatIsUsedAgainIsNotUnused) {
  PageOptions options = options_of(DataPath::persistent);
  options.unused_limit = seconds(60);
  open(options);
  serve(pages_of(2));
  env_.advance_to(env_.now() + seconds(59));
  serve(pages_of(1));
  env_.advance_to(env_.now() + seconds(1));
  EXPECT_FALSE(pages_->maintain(env_.now()));
  EXPECT_EQ(count(Counter::persistent_purged), 1u) << "the other one";
  serve(pages_of(1));
  EXPECT_EQ(count(Counter::persistent_hits), 2u);
}

// One look at the clock serves all releases until the round ends.
TEST_F(GrantedPagesTest, ARoundHasOneTime) {
  PageOptions options = options_of(DataPath::persistent);
  options.unused_limit = seconds(1);
  open(options);
  std::array<HeldPages, 2> held;
  for (std::uint32_t i = 0; i < 2; ++i) ASSERT_TRUE(acquire(pages_of(1, i), held[i]));
  release(held[0]);
  env_.advance_to(env_.now() + millis(500));
  release(held[1]);
  pages_->flush_unmaps();
  env_.advance_to(env_.now() + millis(500));
  EXPECT_FALSE(pages_->maintain(env_.now()));
  EXPECT_EQ(count(Counter::persistent_purged), 2u);
}

TEST_F(GrantedPagesTest, AFullPoolMakesRoomForNewGrants) {
  PageOptions options = options_of(DataPath::persistent);
  options.max_persistent_grants = 40;
  options.purge = blkif::Purge::lru;
  open(options);
  serve(pages_of(40));
  serve(pages_of(2, 40));
  EXPECT_EQ(count(Counter::persistent_overflows), 2u);
  EXPECT_EQ(pages_->next_maintenance(), Instant());
  EXPECT_FALSE(pages_->maintain(env_.now()));
  EXPECT_EQ(count(Counter::persistent_purged), 2u) << "5 % of 40";
  serve(pages_of(2, 40));
  EXPECT_EQ(count(Counter::persistent_misses), 42u) << "now they stay";
}

}  // namespace
}  // namespace xblk::blkback
