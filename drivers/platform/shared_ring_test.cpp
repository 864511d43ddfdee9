// The two views of a ring on one page of memory, at every place where an index can stand when it wraps: what is
// notified, what is refused as overflow, and that a sleep with a hold-off misses no response.
#include "drivers/platform/shared_ring.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <string>

#include "drivers/base/prng.hpp"

namespace xblk::platform {
namespace {

constexpr std::uint32_t kSlots = 32;

class SharedRing : public testing::TestWithParam<std::uint32_t> {
 protected:
  void SetUp() override {
    initialise_ring(page_.data(), page_.size());
    indexes().req_prod = indexes().rsp_prod = start_;
    indexes().req_event = indexes().rsp_event = start_ + 1;
    front_ = FrontView(page_.data(), blkif::kNativeAbi, kSlots, start_);
    back_ = BackView(page_.data(), blkif::kNativeAbi, kSlots);
    ASSERT_TRUE(back_.attach());
  }
  SharedIndexes& indexes() { return *reinterpret_cast<SharedIndexes*>(page_.data()); }

  // True: the backend is to be notified.
  bool ask(std::uint32_t requests) {
    for (std::uint32_t i = 0; i < requests; ++i) static_cast<void>(front_.next_request());
    return front_.push();
  }
  void take(std::uint32_t requests) {
    for (std::uint32_t i = 0; i < requests; ++i) static_cast<void>(back_.next_request());
  }
  // True: the frontend is to be notified.
  bool answer(std::uint32_t responses) {
    for (std::uint32_t i = 0; i < responses; ++i) static_cast<void>(back_.next_response());
    return back_.push();
  }
  void consume(std::uint32_t responses) {
    for (std::uint32_t i = 0; i < responses; ++i) static_cast<void>(front_.next_response());
  }
  std::uint32_t responses() {
    bool overflow = false;
    const std::uint32_t n = front_.unconsumed(overflow);
    EXPECT_FALSE(overflow);
    return n;
  }

  const std::uint32_t start_ = GetParam();
  alignas(4096) std::array<std::byte, kPageSize> page_{};
  FrontView front_;
  BackView back_;
};

INSTANTIATE_TEST_SUITE_P(Starts, SharedRing,
                         testing::Values(0u, 1u, 0x7fffffffu, 0xffffffffu, 0xfffffffeu, 0xfffffff0u, 0xffffffe0u),
                         [](const auto& test) { return "at_" + std::to_string(test.param); });

TEST_P(SharedRing, AFreshRingWantsAnEventForTheFirstItemOfEachSide) {
  EXPECT_TRUE(ask(1));
  EXPECT_FALSE(ask(1)) << "the event was for the first one";
  take(2);
  EXPECT_TRUE(answer(1));
  EXPECT_FALSE(answer(1));
}

TEST_P(SharedRing, SlotsRunOutAndComeBackWithTheResponses) {
  EXPECT_EQ(front_.free_slots(), kSlots);
  ask(kSlots);
  EXPECT_EQ(front_.free_slots(), 0u);
  EXPECT_EQ(front_.outstanding(), kSlots);
  EXPECT_EQ(front_.owed(), kSlots);
  take(kSlots);
  answer(3);
  EXPECT_EQ(responses(), 3u);
  consume(3);
  EXPECT_EQ(front_.free_slots(), 3u);
  EXPECT_EQ(back_.in_flight(), kSlots - 3);
  static_cast<void>(front_.next_request());
  EXPECT_EQ(front_.outstanding(), kSlots - 2) << "written, not yet pushed";
  EXPECT_EQ(front_.owed(), kSlots - 3);
  EXPECT_TRUE(front_.has_unpushed());
}

TEST_P(SharedRing, TheEventComesWithTheItemThatReachesTheWantedIndexAndOnce) {
  ask(8);
  take(8);
  for (std::uint32_t holdoff = 1; holdoff <= 4; ++holdoff) {
    ask(8);
    take(8);
    EXPECT_FALSE(front_.final_check(holdoff));
    for (std::uint32_t n = 1; n <= 5; ++n) EXPECT_EQ(answer(1), n == holdoff) << "hold-off " << holdoff;
    answer(3);
    consume(8);
  }
}

TEST_P(SharedRing, OnePushOfSeveralItemsAcrossTheWantedIndexNotifiesToo) {
  ask(8);
  take(8);
  EXPECT_FALSE(front_.final_check(3));
  EXPECT_FALSE(answer(2));
  EXPECT_TRUE(answer(4));
}

// An index beyond what the backend owes would never be reached.
TEST_P(SharedRing, AHoldOffIsCutToTheRequestsThatAreOwedAResponse) {
  ask(3);
  take(3);
  EXPECT_FALSE(front_.final_check(512));
  EXPECT_FALSE(answer(1));
  EXPECT_FALSE(answer(1));
  EXPECT_TRUE(answer(1)) << "the last one that will come";
  consume(3);
  static_cast<void>(front_.next_request());  // not pushed: it is owed nothing
  EXPECT_FALSE(front_.final_check(512));
  EXPECT_EQ(indexes().rsp_event, start_ + 4) << "nothing is owed: an event at the next response, whenever";
  ask(0);
  take(1);
  EXPECT_TRUE(answer(1));
}

TEST_P(SharedRing, NoSleepWhileAResponseIsThereWhateverTheHoldOff) {
  ask(8);
  take(8);
  answer(1);
  for (const std::uint32_t holdoff : {1u, 2u, 8u, 512u}) EXPECT_TRUE(front_.final_check(holdoff));
  consume(1);
  EXPECT_FALSE(front_.final_check(4));
}

TEST_P(SharedRing, DeferredEventsStayAwayForAWholeRingAndAreArmedAgain) {
  front_.defer_events();
  back_.defer_events();
  for (std::uint32_t i = 0; i < 3 * kSlots; ++i) {
    EXPECT_FALSE(ask(1));
    take(1);
    EXPECT_FALSE(answer(1));
    consume(1);
  }
  EXPECT_FALSE(front_.final_check());
  EXPECT_FALSE(back_.final_check());
  EXPECT_TRUE(ask(1));
  take(1);
  EXPECT_TRUE(answer(1));
}

TEST_P(SharedRing, ABackendThatClaimsMoreResponsesThanRequestsIsFoundOut) {
  ask(4);
  bool overflow = false;
  for (const std::uint32_t claimed : {5u, kSlots + 1, 0x80000000u, 0xffffffffu}) {
    indexes().rsp_prod = start_ + claimed;
    EXPECT_EQ(front_.unconsumed(overflow), 0u);
    EXPECT_TRUE(overflow) << claimed;
  }
  static_cast<void>(front_.next_request());  // written, but not pushed: the backend knows nothing of it
  indexes().rsp_prod = start_ + 5;
  EXPECT_EQ(front_.unconsumed(overflow), 0u);
  EXPECT_TRUE(overflow);
  indexes().rsp_prod = start_ + 4;
  EXPECT_EQ(front_.unconsumed(overflow), 4u);
  EXPECT_FALSE(overflow);
}

TEST_P(SharedRing, AFrontendWhoseProducerRunsAheadOfTheRingIsFoundOut) {
  ask(2);
  take(2);
  answer(1);
  bool overflow = false;
  for (const std::uint32_t ahead : {kSlots + 2, 0x80000000u, 0u}) {
    indexes().req_prod = start_ + ahead;  // from rsp_prod: 33, half the number range, back by one
    EXPECT_EQ(back_.unconsumed(overflow), 0u);
    EXPECT_TRUE(overflow) << ahead;
  }
  indexes().req_prod = start_ + kSlots + 1;
  EXPECT_EQ(back_.unconsumed(overflow), kSlots - 1) << "a full ring less the one that is in flight";
  EXPECT_FALSE(overflow);
}

TEST_P(SharedRing, APoisonedRingIsRefusedAtAttachAndALiveOneTakenOverFromItsResponses) {
  ask(6);
  take(6);
  answer(2);
  BackView successor(page_.data(), blkif::kNativeAbi, kSlots);
  ASSERT_TRUE(successor.attach());
  bool overflow = false;
  EXPECT_EQ(successor.unconsumed(overflow), 4u) << "those without a response";
  indexes().req_prod = start_ + 3 + kSlots;
  EXPECT_FALSE(successor.attach());
}

// Both ends act at random. A side that sleeps is woken only by an event; if one were lost, all would stand still.
TEST_P(SharedRing, NoWakeUpIsLostWhateverTheHoldOffs) {
  Prng random(start_ + 7);
  SCOPED_TRACE("seed " + std::to_string(start_ + 7));
  bool front_sleeps = false;
  bool back_sleeps = false;
  std::uint64_t consumed = 0;
  for (int turn = 0; turn < 20000; ++turn) {
    if (random.below(2) == 0 && !front_sleeps) {
      consume(responses());
      const auto n = static_cast<std::uint32_t>(random.below(front_.free_slots() + 1));
      consumed += n;
      if (n > 0 && ask(n)) back_sleeps = false;
      if (front_.owed() > 0) front_sleeps = !front_.final_check(1 + static_cast<std::uint32_t>(random.below(kSlots)));
    } else if (!back_sleeps) {
      bool overflow = false;
      take(back_.unconsumed(overflow));
      ASSERT_FALSE(overflow);
      const auto n = static_cast<std::uint32_t>(random.below(back_.in_flight() + 1));
      if (n > 0 && answer(n)) front_sleeps = false;
      if (back_.in_flight() == 0) back_sleeps = !back_.final_check();
    }
    ASSERT_FALSE(front_sleeps && back_sleeps) << "turn " << turn;
  }
  EXPECT_GT(consumed, 10000u);
}

// ring.h, RING_PUSH_*_AND_CHECK_NOTIFY: the event index lies in (old, new].
TEST(ShouldNotify, IsTrueForEveryIndexWithinThePushAndForNoOther) {
  for (const std::uint32_t old : {0u, 5u, 0x7ffffffeu, 0xfffffffcu, 0xffffffffu}) {
    for (std::uint32_t pushed = 0; pushed <= 6; ++pushed) {
      for (std::uint32_t event = 0; event <= 8; ++event) {
        EXPECT_EQ(blkif::should_notify(old, old + pushed, old + event), event >= 1 && event <= pushed)
            << old << " + " << pushed << ", event " << event;
      }
      EXPECT_FALSE(blkif::should_notify(old, old + pushed, old - 1));
    }
  }
}

}  // namespace
}  // namespace xblk::platform
