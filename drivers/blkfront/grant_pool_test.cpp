// The pool when the guest runs out: all or nothing, and a full grant table costs no memory per retry.
#include "drivers/blkfront/grant_pool.hpp"

#include <gtest/gtest.h>

#include <memory>
#include <set>

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
    Result<GrantRef> grant(DomId, FrameNumber, platform::Access) {
      if (granted.size() == entries) return fail(ENOSPC, "grant table full");
      granted.insert(next);
      return GrantRef(next++);
    }
    bool end_access(GrantRef gref) { return !backend_keeps && granted.erase(gref.value()) == 1; }

    std::uint32_t next = 8;
    std::byte memory[kPageSize];  // never written: one page stands for all
  };
};

class GrantPoolTest : public testing::Test {
 protected:
  FakePlatform::Env env_;
  FakePlatform::Front front_;
  platform::LockWait wait_;
};

TEST_F(GrantPoolTest, GrowsToItsCapacityAndNotBeyond) {
  front_.entries = 1000;
  GrantPool<FakePlatform> pool(env_, front_, kDom0, 40, false);
  std::vector<GrantedPage> pages;
  EXPECT_TRUE(pool.take(40, pages, wait_));
  EXPECT_FALSE(pool.take(1, pages, wait_));
  EXPECT_EQ(pages.size(), 40u) << "a take that fails adds nothing";
  EXPECT_EQ(pool.granted(), 40u);
  pool.give_back(pages, wait_);
  EXPECT_TRUE(pool.take(40, pages, wait_));
  pool.give_back(pages, wait_);
  EXPECT_EQ(pool.release(), 0u);
  EXPECT_EQ(front_.pages_out, 0u);
  EXPECT_TRUE(front_.granted.empty());
}

TEST_F(GrantPoolTest, RetriesOnAFullGrantTableEatNoMemory) {
  front_.entries = 40;  // the second block of 32 gets 8
  GrantPool<FakePlatform> pool(env_, front_, kDom0, 1000, false);
  std::vector<GrantedPage> pages;
  EXPECT_FALSE(pool.take(64, pages, wait_));
  const std::uint32_t before = front_.pages_out;
  for (int retry = 0; retry < 100; ++retry) EXPECT_FALSE(pool.take(64, pages, wait_));
  EXPECT_EQ(front_.pages_out, before);
  EXPECT_TRUE(pool.take(40, pages, wait_)) << "what was granted is usable";
  pool.give_back(pages, wait_);
}

TEST_F(GrantPoolTest, PagesThatTheBackendKeepsAreCountedAndNotFreed) {
  front_.entries = 1000;
  GrantPool<FakePlatform> pool(env_, front_, kDom0, 64, false);
  std::vector<GrantedPage> pages;
  ASSERT_TRUE(pool.take(1, pages, wait_));
  pool.give_back(pages, wait_);
  front_.backend_keeps = true;
  EXPECT_EQ(pool.release(), 32u);
  EXPECT_EQ(front_.pages_out, 32u);
}

}  // namespace
}  // namespace xblk::blkfront
