// The grant table and its entries against a guest that does as it likes with the shared frames.
#include "drivers/hypervisor/grant_table.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

#include "drivers/env/real/real_env.hpp"

namespace xblk::hypervisor {
namespace {

using platform::Access;
using platform::GrantStatus;

TEST(GrantEntry, HasTheLayoutOfGrantEntryV1) {
  GrantEntry entry{};
  publish_grant(entry, DomId(0x1234), FrameNumber(0x89abcdef), Access::read_only);
  const auto* bytes = reinterpret_cast<const unsigned char*>(&entry);
  const std::vector<unsigned char> wire(bytes, bytes + sizeof entry);
  EXPECT_EQ(wire, (std::vector<unsigned char>{0x05, 0x00, 0x34, 0x12, 0xef, 0xcd, 0xab, 0x89}));
}

TEST(GrantEntry, StatusIsSetOnlyForTheGrantedDomainAndAccess) {
  struct Case {
    std::uint32_t header;
    Access access;
    bool admitted;
  };
  const auto entry = [](std::uint32_t flags, unsigned domain) { return flags | domain << 16; };
  const std::vector<Case> cases = {
      {entry(kGtfPermitAccess, 0), Access::read_write, true},
      {entry(kGtfPermitAccess, 0), Access::read_only, true},
      {entry(kGtfPermitAccess | kGtfReadOnly, 0), Access::read_only, true},
      {entry(kGtfPermitAccess | kGtfReadOnly, 0), Access::read_write, false},
      {entry(kGtfPermitAccess, 1), Access::read_only, false},
      {entry(0, 0), Access::read_only, false},                               // GTF_invalid
      {entry(2, 0), Access::read_only, false},                               // GTF_accept_transfer
      {entry(3, 0), Access::read_only, false},                               // GTF_transitive
      {entry(kGtfPermitAccess | kGtfSubPage, 0), Access::read_only, false},  // only part of the page is granted
  };
  for (const Case& c : cases) {
    GrantEntry shared{c.header, 0};
    EXPECT_EQ(set_status(shared, kDom0, c.access) == GrantStatus::okay, c.admitted) << std::hex << c.header;
    const std::uint32_t marks = kGtfReading | (c.access == Access::read_write ? kGtfWriting : 0);
    EXPECT_EQ(shared.header, c.admitted ? c.header | marks : c.header) << std::hex << c.header;
  }
}

TEST(GrantEntry, IsWithdrawnOnlyWhileUnused) {
  GrantEntry entry{};
  publish_grant(entry, kDom0, FrameNumber(1), Access::read_write);
  ASSERT_EQ(set_status(entry, kDom0, Access::read_write), GrantStatus::okay);
  EXPECT_FALSE(withdraw_grant(entry));
  clear_status(entry, kGtfWriting);
  EXPECT_FALSE(withdraw_grant(entry)) << "still being read";
  clear_status(entry, kGtfReading);
  EXPECT_TRUE(withdraw_grant(entry));
  EXPECT_EQ(entry.header, 0u);
}

class GrantTableTest : public ::testing::TestWithParam<GrantLocks> {
 protected:
  static constexpr std::uint32_t kFrames = 2;
  static constexpr std::uint32_t kMemoryPages = 100;
  static constexpr GrantRef kGref{600};  // in the second frame

  GrantEntry& entry(GrantRef gref = kGref) { return entries_[gref.value()]; }
  void offer(std::uint32_t frame, Access access = Access::read_write) {
    publish_grant(entry(), kDom0, FrameNumber(frame), access);
  }
  Acquired acquire(Access access = Access::read_write, DomId mapper = kDom0) {
    return table_.acquire(kGref, mapper, access, wait_);
  }
  void release(Access access = Access::read_write) { table_.release(kGref, access, wait_); }

  env::RealEnv env_;
  platform::LockWait wait_;
  std::vector<GrantEntry> entries_ = std::vector<GrantEntry>(kFrames * kGrantsPerFrame);
  GrantTable<env::RealEnv> table_{env_, GetParam(), reinterpret_cast<std::byte*>(entries_.data()), kFrames,
                                  kMemoryPages};
};

TEST_P(GrantTableTest, ReferencesEndWithTheTable) {
  const auto status = [&](std::uint32_t gref) {
    return table_.acquire(GrantRef(gref), kDom0, Access::read_only, wait_).status;
  };
  EXPECT_EQ(status(kFrames * kGrantsPerFrame), GrantStatus::bad_gntref);
  EXPECT_EQ(status(0xffffffff), GrantStatus::bad_gntref);
  EXPECT_EQ(status(kFrames * kGrantsPerFrame - 1), GrantStatus::general_error) << "exists, but grants nothing";
}

TEST_P(GrantTableTest, FrameOutsideTheDomainIsABadPageAndHoldsNothing) {
  offer(kMemoryPages);
  EXPECT_EQ(acquire().status, GrantStatus::bad_page);
  EXPECT_TRUE(withdraw_grant(entry()));
  offer(0xffffffff);
  EXPECT_EQ(acquire(Access::read_only).status, GrantStatus::bad_page);
  EXPECT_TRUE(withdraw_grant(entry()));
  EXPECT_EQ(table_.active_entries(), 0u);
}

TEST_P(GrantTableTest, RewrittenEntryNeverChangesAnActiveFrame) {
  offer(7);
  ASSERT_EQ(acquire().frame, FrameNumber(7));
  publish_grant(entry(), kDom0, FrameNumber(8), Access::read_write);
  const Acquired second = acquire();
  EXPECT_EQ(second.status, GrantStatus::okay);
  EXPECT_EQ(second.frame, FrameNumber(7));
  release();
  release();
  EXPECT_EQ(acquire().frame, FrameNumber(8)) << "only an idle entry is read again";
  release();
}

TEST_P(GrantTableTest, ClearedEntryStaysAcquiredButAdmitsNoMoreAccess) {
  offer(7);
  ASSERT_EQ(acquire(Access::read_only).status, GrantStatus::okay);
  entry() = {};
  EXPECT_EQ(acquire(Access::read_only).frame, FrameNumber(7)) << "as on Xen: what is held may be held again";
  EXPECT_NE(acquire(Access::read_write).status, GrantStatus::okay) << "more than what is held is asked of the entry";
  release(Access::read_only);
  release(Access::read_only);
  EXPECT_EQ(entry().header, 0u);
  EXPECT_NE(acquire(Access::read_only).status, GrantStatus::okay);
  EXPECT_EQ(table_.active_entries(), 0u);
}

TEST_P(GrantTableTest, AnotherMapperIsRefusedWhileActive) {
  offer(7);
  ASSERT_EQ(acquire().status, GrantStatus::okay);
  publish_grant(entry(), DomId(9), FrameNumber(7), Access::read_write);
  EXPECT_NE(acquire(Access::read_write, DomId(9)).status, GrantStatus::okay);
  release();
  EXPECT_EQ(acquire(Access::read_write, DomId(9)).status, GrantStatus::okay);
  release();
}

TEST_P(GrantTableTest, WritingBitFallsWithTheLastWriterAndReadingWithTheLastPin) {
  offer(3);
  ASSERT_EQ(acquire(Access::read_only).status, GrantStatus::okay);
  EXPECT_EQ(entry().header & (kGtfReading | kGtfWriting), kGtfReading);
  ASSERT_EQ(acquire().status, GrantStatus::okay);
  ASSERT_EQ(acquire().status, GrantStatus::okay);
  EXPECT_EQ(entry().header & (kGtfReading | kGtfWriting), kGtfReading | kGtfWriting);
  release();
  EXPECT_EQ(entry().header & (kGtfReading | kGtfWriting), kGtfReading | kGtfWriting);
  release();
  EXPECT_EQ(entry().header & (kGtfReading | kGtfWriting), kGtfReading);
  release(Access::read_only);
  EXPECT_EQ(entry().header & (kGtfReading | kGtfWriting), 0u);
}

TEST_P(GrantTableTest, ClosedTableOnlyReleases) {
  offer(3);
  ASSERT_EQ(acquire().status, GrantStatus::okay);
  table_.close(wait_);
  EXPECT_EQ(acquire().status, GrantStatus::bad_domain);
  release();
  EXPECT_EQ(table_.active_entries(), 0u);
}

// A guest that rewrites the entry at full speed: each acquire either fails or yields a frame that was granted.
TEST_P(GrantTableTest, EntryUnderFireYieldsOnlyWhatWasGranted) {
  std::atomic<bool> running{false};
  std::atomic<bool> stop{false};
  std::thread guest([&] {
    for (std::uint32_t i = 0; !stop; ++i) {
      running = true;
      // A whole entry is two words: a frame may meet the other grant's header, which its owner has allowed as well.
      publish_grant(entry(), i % 3 == 0 ? DomId(9) : kDom0, FrameNumber(10 + i % 4), Access::read_write);
      if (i % 7 == 0) withdraw_grant(entry());
    }
  });
  while (!running) std::this_thread::yield();
  for (int i = 0; i < 20'000; ++i) {
    const Acquired got = acquire();
    if (got.status != GrantStatus::okay) continue;
    ASSERT_GE(got.frame.value(), 10u);
    ASSERT_LT(got.frame.value(), 14u);
    release();
  }
  stop = true;
  guest.join();
  EXPECT_EQ(table_.active_entries(), 0u);
}

INSTANTIATE_TEST_SUITE_P(Locks, GrantTableTest, ::testing::Values(GrantLocks::coarse, GrantLocks::split),
                         [](const auto& locks) { return locks.param == GrantLocks::coarse ? "coarse" : "split"; });

}  // namespace
}  // namespace xblk::hypervisor
