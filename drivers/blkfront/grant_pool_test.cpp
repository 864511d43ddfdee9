// The pool when the guest runs out: all or nothing, and a full grant table costs no memory per retry.
#include "drivers/blkfront/grant_pool.hpp"

#include <gtest/gtest.h>

#include <optional>
#include <set>
#include <vector>

namespace xblk::blkfront {
namespace {

// A guest with plenty of pages and few grant entries; the pool needs no more of a platform than this.
struct FakePlatform {
  struct Env {
    struct Mutex {
      explicit Mutex(Env&) {}
      void lock(platform::LockWait&) {}
      void unlock() {}
    };
  };
  struct Front {
    std::uint32_t entries = 0;
    std::set<std::uint32_t> granted;
    std::uint32_t pages_out = 0;
    bool backend_keeps = false;

    Result<platform::PageBlock> allocate_pages(DomId, std::uint32_t pages) {
      pages_out += pages;
      return platform::PageBlock{memory, FrameNumber(0), pages};
    }
    void free_pages(const platform::PageBlock& block) { pages_out -= block.pages; }
    [[nodiscard]] std::optional<FrameNumber> frame_of(const std::byte*) const { return FrameNumber(0); }
    Result<GrantRef> grant(DomId, FrameNumber, platform::Access) {
      if (granted.size() == entries) return fail(ENOSPC, "grant table full");
      granted.insert(next);
      return GrantRef(next++);
    }
    bool end_access(GrantRef gref) { return !backend_keeps && granted.erase(gref.value()) == 1; }

    std::uint32_t next = 8;
    std::byte memory[64 * kPageSize];  // blocks lie on top of each other: no page is read
  };
};

using Pool = GrantPool<FakePlatform>;
using platform::Access;

class GrantPoolTest : public testing::Test {
 protected:
  static PoolSetup setup(std::uint32_t capacity, Keep keep = Keep::granted) {
    return {kDom0, capacity, /*shared=*/false, keep, /*clean=*/true};
  }
  // All or nothing.
  bool take(Pool& pool, std::uint32_t count) {
    std::vector<GrantedPage> pages(count);
    if (pool.take(pages, count, Access::read_write, costs_) == 0) return false;
    taken_.insert(taken_.end(), pages.begin(), pages.end());
    return true;
  }
  bool give_back(Pool& pool) {
    const bool ended = pool.give_back(taken_, costs_);
    taken_.clear();
    return ended;
  }

  FakePlatform::Env env_;
  FakePlatform::Front front_;
  PoolCosts costs_;
  std::vector<GrantedPage> taken_;
};

TEST_F(GrantPoolTest, GrowsToItsCapacityAndNotBeyond) {
  front_.entries = 1000;
  Pool pool(env_, front_, setup(40));
  EXPECT_TRUE(take(pool, 40));
  EXPECT_FALSE(take(pool, 1));
  EXPECT_EQ(pool.granted(), 40u);
  EXPECT_EQ(costs_.granted, 40u);
  EXPECT_TRUE(give_back(pool));
  EXPECT_TRUE(take(pool, 40));
  EXPECT_EQ(costs_.granted, 40u) << "they stayed granted";
  EXPECT_TRUE(give_back(pool));
  EXPECT_EQ(pool.release(costs_), 0u);
  EXPECT_EQ(costs_.ended, 40u);
  EXPECT_EQ(front_.pages_out, 0u);
  EXPECT_TRUE(front_.granted.empty());
}

TEST_F(GrantPoolTest, RetriesOnAFullGrantTableEatNoMemory) {
  front_.entries = 40;  // the second block of 32 gets 8
  Pool pool(env_, front_, setup(1000));
  EXPECT_FALSE(take(pool, 64));
  const std::uint32_t before = front_.pages_out;
  for (int retry = 0; retry < 100; ++retry) EXPECT_FALSE(take(pool, 64));
  EXPECT_EQ(front_.pages_out, before);
  EXPECT_TRUE(take(pool, 40)) << "what was granted is usable";
  EXPECT_TRUE(give_back(pool));
}

TEST_F(GrantPoolTest, GivesAPartWhereThatIsEnough) {
  front_.entries = 5;
  for (const Keep keep : {Keep::granted, Keep::pages}) {
    Pool pool(env_, front_, setup(64, keep));
    std::vector<GrantedPage> pages(8);
    EXPECT_EQ(pool.take(pages, 6, Access::read_write, costs_), 0u);
    EXPECT_EQ(front_.granted.size(), keep == Keep::granted ? 5u : 0u) << "nothing is held after a failed take";
    EXPECT_EQ(pool.take(pages, 1, Access::read_write, costs_), 5u);
    EXPECT_TRUE(pool.give_back(std::span(pages).first(5), costs_));
    EXPECT_EQ(pool.release(costs_), 0u);
    EXPECT_TRUE(front_.granted.empty());
    EXPECT_EQ(front_.pages_out, 0u);
  }
}

TEST_F(GrantPoolTest, PagesThatTheBackendKeepsAreCountedAndNotFreed) {
  front_.entries = 1000;
  Pool pool(env_, front_, setup(64));
  ASSERT_TRUE(take(pool, 1));
  EXPECT_TRUE(give_back(pool));
  front_.backend_keeps = true;
  EXPECT_EQ(pool.release(costs_), 32u);
  EXPECT_EQ(front_.pages_out, 32u);
}

TEST_F(GrantPoolTest, APageGrantedForOneRequestIsNotReusedWhileTheBackendKeepsIt) {
  front_.entries = 1000;
  Pool pool(env_, front_, setup(1, Keep::pages));
  ASSERT_TRUE(take(pool, 1));
  EXPECT_EQ(pool.granted(), 1u);
  front_.backend_keeps = true;
  EXPECT_FALSE(give_back(pool));
  EXPECT_FALSE(take(pool, 1)) << "the one page is the backend's";
  front_.backend_keeps = false;
  EXPECT_EQ(pool.release(costs_), 0u) << "until it lets go";
  EXPECT_EQ(front_.pages_out, 0u);
}

TEST_F(GrantPoolTest, AbandonedPagesAreNotReusedButReleased) {
  front_.entries = 1000;
  Pool pool(env_, front_, setup(1));
  ASSERT_TRUE(take(pool, 1));
  pool.abandon(taken_);
  EXPECT_FALSE(take(pool, 1));
  EXPECT_EQ(pool.release(costs_), 0u);
  EXPECT_EQ(front_.pages_out, 0u);
}

}  // namespace
}  // namespace xblk::blkfront
