#include "drivers/blkif/ring_layout.hpp"

#include <gtest/gtest.h>
#include <sys/types.h>

#include <xen/xen.h>

#include <xen/io/blkif.h>

#include <set>

namespace xblk::blkif {
namespace {

static_assert(offsetof(blkif_sring, req_prod) == kReqProdOffset && offsetof(blkif_sring, req_event) == kReqEventOffset);
static_assert(offsetof(blkif_sring, rsp_prod) == kRspProdOffset && offsetof(blkif_sring, rsp_event) == kRspEventOffset);
static_assert(offsetof(blkif_sring, ring) == kRingHeaderSize);

constexpr Abi kAbis[] = {Abi::x86_64, Abi::x86_32};

TEST(RingSlots, AreTheCapacitiesOfTheSpec) {
  const std::uint32_t expected[] = {32, 64, 128, 256, 512};
  for (const Abi abi : kAbis) {
    for (std::uint32_t order = 0; order <= kRingPageOrderMax; ++order) {
      EXPECT_EQ(ring_slots(1u << order, abi), expected[order]) << protocol_name(abi) << " order " << order;
    }
  }
  for (std::uint32_t pages = 1; pages <= kRingPagesMax; ++pages) {
    EXPECT_EQ(ring_slots(pages, Abi::x86_64), __CONST_RING_SIZE(blkif, pages * 4096u)) << pages << " pages";
  }
}

// The largest power of two that fits: one more doubling would not.
TEST(RingSlots, FillTheRingAsFarAsAPowerOfTwoCan) {
  for (const Abi abi : kAbis) {
    for (std::uint32_t pages = 1; pages <= kRingPagesMax; ++pages) {
      const std::uint32_t slots = ring_slots(pages, abi);
      const std::size_t room = pages * kPageSize - kRingHeaderSize;
      EXPECT_LE(slots * slot_size(abi), room) << pages;
      EXPECT_GT(2 * slots * slot_size(abi), room) << pages;
    }
  }
}

TEST(SlotOffset, IsDisjointInsideTheRingAndContinuousOverTheWrap) {
  for (const Abi abi : kAbis) {
    for (const std::uint32_t pages : {1u, 2u, 4u, 8u, 16u}) {
      const std::uint32_t slots = ring_slots(pages, abi);
      std::set<std::size_t> offsets;
      // A whole turn that crosses 2^32.
      for (std::uint32_t i = 0; i < slots; ++i) offsets.insert(slot_offset(0u - slots / 2 + i, slots, abi));
      ASSERT_EQ(offsets.size(), slots);
      EXPECT_EQ(*offsets.begin(), kRingHeaderSize);
      EXPECT_LE(*offsets.rbegin() + slot_size(abi), pages * kPageSize);
      std::size_t expected = kRingHeaderSize;
      for (const std::size_t offset : offsets) {
        EXPECT_EQ(offset, expected);
        expected += slot_size(abi);
      }
      EXPECT_EQ(slot_offset(0xffffffffu, slots, abi) + slot_size(abi),
                slot_offset(slots - 1, slots, abi) + slot_size(abi));
      EXPECT_EQ(slot_offset(0, slots, abi), kRingHeaderSize);
    }
  }
}

// Every base around the wrap, every distance: the reference counts in 64 bits, where nothing wraps.
TEST(Indexes, AgreeWithArithmeticThatDoesNotWrap) {
  constexpr std::uint32_t kSlots = 32;
  constexpr std::uint64_t kWrap = std::uint64_t{1} << 32;
  for (std::uint64_t base = kWrap - 80; base <= kWrap + 80; ++base) {
    for (std::uint64_t ahead = 0; ahead <= 2 * kSlots; ++ahead) {
      const auto cons = static_cast<std::uint32_t>(base), prod = static_cast<std::uint32_t>(base + ahead);
      EXPECT_EQ(unconsumed(prod, cons), ahead);
      EXPECT_EQ(producer_overflow(prod, cons, kSlots), ahead > kSlots) << base << " + " << ahead;
      if (ahead <= kSlots) {
        EXPECT_EQ(free_slots(prod, cons, kSlots), kSlots - ahead);
      }
    }
  }
}

TEST(Indexes, AHostileProducerIsCaught) {
  for (const std::uint32_t base : {0u, 5u, 0x7fffffffu, 0xfffffff0u}) {
    EXPECT_TRUE(producer_overflow(base + 0x80000000u, base, 512));
    EXPECT_TRUE(producer_overflow(base - 1, base, 512)) << "running backwards";
    EXPECT_TRUE(producer_overflow(base + 513, base, 512));
    EXPECT_FALSE(producer_overflow(base + 512, base, 512));
  }
}

// Notify exactly if event lies in (old, new]. Events up to two rings away on both sides, pushes of 0 to 32, all around
// the wrap; plus an event that was never set near the indexes.
TEST(ShouldNotify, IfThePushPassedTheEvent) {
  constexpr std::uint64_t kWrap = std::uint64_t{1} << 32;
  for (std::uint64_t old_prod = kWrap - 40; old_prod <= kWrap + 8; ++old_prod) {
    for (std::uint64_t pushed = 0; pushed <= 32; ++pushed) {
      for (std::uint64_t event = old_prod - 64; event <= old_prod + 64; ++event) {
        const bool expected = event > old_prod && event <= old_prod + pushed;
        ASSERT_EQ(should_notify(static_cast<std::uint32_t>(old_prod), static_cast<std::uint32_t>(old_prod + pushed),
                                static_cast<std::uint32_t>(event)),
                  expected)
            << old_prod << " + " << pushed << ", event " << event;
      }
    }
  }
  EXPECT_FALSE(should_notify(10, 42, 10 + 0x80000000u));
}

TEST(ShouldNotify, OnTheFirstPushOfAFreshRing) {
  EXPECT_TRUE(should_notify(0, 1, kInitialEvent));
}

}  // namespace
}  // namespace xblk::blkif
