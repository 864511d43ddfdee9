// Two rings of one device when grants run short: who is told to come again, who is told that it will never work, and
// that things move on in smaller steps. No key store, no XenBus: the rings alone, answered by the test.
#include "drivers/blkfront/ring.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cerrno>
#include <memory>
#include <optional>
#include <vector>

#include "drivers/blkfront/frontend_testing.hpp"

namespace xblk::blkfront {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

constexpr DomId kGuest{1};
constexpr std::uint32_t kGuestPages = 2048;
constexpr std::uint32_t kSegmentsMax = 32;

// A guest whose grant table is full at the moment that the test says: as if another thread had been quicker.
struct FickleGuest {
  Result<platform::PageBlock> allocate_pages(DomId peer, std::uint32_t pages) {
    return guest.allocate_pages(peer, pages);
  }
  void free_pages(const platform::PageBlock& block) { guest.free_pages(block); }
  [[nodiscard]] std::optional<FrameNumber> frame_of(const std::byte* at) const { return guest.frame_of(at); }
  Result<GrantRef> grant(DomId peer, FrameNumber frame, platform::Access access) {
    if (full) return fail(ENOSPC, "full");
    return guest.grant(peer, frame, access);
  }
  bool end_access(GrantRef gref) { return guest.end_access(gref); }
  void notify(EventPort port) { guest.notify(port); }

  TestPlatform::Front& guest;
  bool full = false;
};
struct FicklePlatform {
  using Env = TimedEnv;
  using Front = FickleGuest;
};

class Shortage : public testing::Test {
 protected:
  struct End {
    explicit End(Shortage& test) : ring(test.env_, test.fickle_, counters), mailbox(test.env_) {}
    QueueCounters counters;
    Ring<FicklePlatform> ring;
    Mailbox<FicklePlatform> mailbox;
    platform::BackView back;
  };
  enum class Way { callers_pages, per_request, persistent };

  void attach(Way way) {
    for (std::uint32_t q = 0; q < ends_.size(); ++q) {
      ends_[q] = std::make_unique<End>(*this);
      const auto page = guest_->allocate_pages(kDom0, 1).value();
      platform::initialise_ring(page.address, kPageSize);
      RingSetup setup;
      setup.number = q;
      setup.shared = page.address;
      setup.slots = blkif::ring_slots(1, blkif::kNativeAbi);
      setup.port = guest_->allocate_port(kDom0).value();
      setup.segments_max = kSegmentsMax;
      setup.copies = way != Way::callers_pages;
      setup.device.capacity = Sectors(1 << 20);
      setup.features = &features_;
      setup.marks = &marks_;
      const auto kept = make_pool(Keep::granted);
      ends_[q]->ring.attach(setup,
                            way == Way::persistent    ? kept
                            : way == Way::per_request ? make_pool(Keep::pages)
                                                      : nullptr,
                            kept);
      ends_[q]->back = platform::BackView(page.address, blkif::kNativeAbi, setup.slots);
      ASSERT_TRUE(ends_[q]->back.attach());
    }
    buffer_ = guest_->allocate_pages(kDom0, 256).value().address;
    leave_grants(0);
  }
  std::shared_ptr<GrantPool<FicklePlatform>> make_pool(Keep keep) {
    return std::make_shared<GrantPool<FicklePlatform>>(env_, fickle_, PoolSetup{kDom0, 1024, false, keep, false});
  }
  // All others are in use, by somebody who gives none back.
  void leave_grants(std::size_t n) {
    while (auto gref = guest_->grant(kDom0, FrameNumber(0), platform::Access::read_write)) taken_.push_back(*gref);
    for (; n > 0; --n) {
      ASSERT_TRUE(guest_->end_access(taken_.back()));
      taken_.pop_back();
    }
  }

  int submit(std::size_t q, std::uint64_t pages, IoOp op = IoOp::read) {
    const Io io{op, Sectors(0), Sectors(pages * kSectorsPerPage), buffer_};
    const auto status = ends_[q]->ring.submit(io, ends_[q]->mailbox);
    ends_[q]->ring.commit();
    return status ? 0 : status.error().code;
  }
  // Answers what the ring has sent; returns how many segments each request had.
  std::vector<unsigned> answer(std::size_t q) {
    blkif::DeviceLimits limits;
    limits.capacity = Sectors(1 << 20);
    limits.indirect_segments_max = blkif::kIndirectSegmentsMax;
    bool overflow = false;
    std::vector<unsigned> segments;
    auto& back = ends_[q]->back;
    for (std::uint32_t n = back.unconsumed(overflow); n > 0; --n) {
      const auto raw = platform::Untrusted<blkif::RawRequest>(back.next_request()).fetch();
      const auto request = blkif::parse_request(blkif::kNativeAbi, raw, limits);
      EXPECT_TRUE(request.has_value());
      segments.push_back(request->segment_count);
      const auto response = blkif::encode_response({request->id, request->op, blkif::ResponseStatus::okay});
      platform::copy_to_shared(back.next_response(), response.bytes.data(), response.bytes.size());
    }
    static_cast<void>(back.push());
    ends_[q]->ring.process_responses();
    return segments;
  }
  // The errors of what has completed.
  std::vector<int> completed(std::size_t q) {
    std::vector<int> errors;
    for (; !ends_[q]->mailbox.ready.empty(); ends_[q]->mailbox.ready.pop()) {
      errors.push_back(ends_[q]->mailbox.ready.front().error);
    }
    return errors;
  }

  TimedEnv env_;
  hypervisor::Hypervisor<TimedEnv> hypervisor_{env_};
  std::unique_ptr<TestPlatform::Front> guest_ =
      std::move(*TestPlatform::Front::create(hypervisor_, kGuest, kGuestPages, {.grant_frames = 1}));
  FickleGuest fickle_{*guest_};
  Features features_;
  HoldMarks marks_;
  std::array<std::unique_ptr<End>, 2> ends_;
  std::byte* buffer_ = nullptr;
  std::vector<GrantRef> taken_;
};

class ShortageOfRequests : public Shortage, public testing::WithParamInterface<bool> {
 protected:
  static Way way() { return GetParam() ? Way::per_request : Way::callers_pages; }
};
INSTANTIATE_TEST_SUITE_P(Ways, ShortageOfRequests, testing::Bool(),
                         [](const auto& test) { return test.param ? "copied" : "callers_pages"; });

TEST_P(ShortageOfRequests, WhoLacksWhatAnotherQueueHoldsComesAgainAndGetsIt) {
  ASSERT_NO_FATAL_FAILURE(attach(way()));
  leave_grants(4);
  EXPECT_EQ(submit(0, 4), 0);
  for (int again = 0; again < 100; ++again) EXPECT_EQ(submit(1, 1), EAGAIN);
  EXPECT_THAT(answer(0), ElementsAre(4));
  EXPECT_EQ(submit(1, 1), 0);
  EXPECT_THAT(answer(1), ElementsAre(1));
  EXPECT_THAT(completed(1), ElementsAre(0));
}

TEST_P(ShortageOfRequests, WhereNobodyHoldsAnythingItIsAnErrorAtOnce) {
  ASSERT_NO_FATAL_FAILURE(attach(way()));
  EXPECT_EQ(submit(0, 1), ENOMEM);
  EXPECT_EQ(submit(1, 1), ENOMEM) << "the other's attempt left no trace";
  leave_grants(1);
  EXPECT_EQ(submit(0, 1), 0);
  EXPECT_EQ(submit(1, 1), EAGAIN);
  EXPECT_THAT(answer(0), ElementsAre(1));
  EXPECT_EQ(submit(1, 1), 0);
  EXPECT_THAT(answer(1), ElementsAre(1));
  leave_grants(0);
  EXPECT_EQ(submit(0, 1), ENOMEM);
}

TEST_P(ShortageOfRequests, ALongIoGoesOnInThePiecesThatGrantsAllow) {
  ASSERT_NO_FATAL_FAILURE(attach(way()));
  leave_grants(3);
  EXPECT_EQ(submit(0, 8), 0);
  EXPECT_THAT(answer(0), ElementsAre(3));
  EXPECT_THAT(completed(0), IsEmpty());
  EXPECT_THAT(answer(0), ElementsAre(3));
  EXPECT_THAT(answer(0), ElementsAre(2));
  EXPECT_THAT(completed(0), ElementsAre(0));
  EXPECT_EQ(ends_[0]->counters.get(Counter::read_bytes), 8 * kPageSize);
}

TEST_P(ShortageOfRequests, WithoutAnIndirectPageRequestsAreDirect) {
  ASSERT_NO_FATAL_FAILURE(attach(way()));
  leave_grants(11);
  EXPECT_EQ(submit(0, 12), 0);
  EXPECT_THAT(answer(0), ElementsAre(11));
  EXPECT_THAT(answer(0), ElementsAre(1));
  EXPECT_THAT(completed(0), ElementsAre(0));
  EXPECT_EQ(ends_[0]->counters.get(Counter::requests_indirect), 0u);
}

// While the ring has requests in flight, the next one waits for their grants instead of being cut into crumbs.
TEST_P(ShortageOfRequests, BehindRequestsInFlightItIsAllOrNothing) {
  ASSERT_NO_FATAL_FAILURE(attach(way()));
  leave_grants(5);
  EXPECT_EQ(submit(0, 3), 0);
  EXPECT_EQ(submit(0, 3), EAGAIN);
  EXPECT_EQ(submit(0, 2), 0);
  EXPECT_THAT(answer(0), ElementsAre(3, 2));
}

// The rest of an I/O: another queue was quicker when its first part ended.
TEST_P(ShortageOfRequests, TheRestOfAnIoWaitsForTheQueueThatWasQuicker) {
  ASSERT_NO_FATAL_FAILURE(attach(way()));
  leave_grants(2);
  EXPECT_EQ(submit(0, 4), 0);
  leave_grants(1);
  EXPECT_EQ(submit(1, 1), 0);
  fickle_.full = true;
  EXPECT_THAT(answer(0), ElementsAre(2));
  EXPECT_TRUE(ends_[0]->ring.starved());
  EXPECT_THAT(completed(0), IsEmpty());
  EXPECT_EQ(submit(0, 1), EAGAIN) << "nothing passes the one that waits";
  fickle_.full = false;
  EXPECT_THAT(answer(1), ElementsAre(1));
  EXPECT_THAT(answer(0), IsEmpty());
  EXPECT_FALSE(ends_[0]->ring.starved());
  EXPECT_THAT(answer(0), ElementsAre(2));
  EXPECT_THAT(completed(0), ElementsAre(0));
}

TEST_P(ShortageOfRequests, TheRestOfAnIoFailsWhereNobodyHoldsWhatItLacks) {
  ASSERT_NO_FATAL_FAILURE(attach(way()));
  leave_grants(2);
  EXPECT_EQ(submit(0, 4), 0);
  fickle_.full = true;
  EXPECT_THAT(answer(0), ElementsAre(2));
  EXPECT_THAT(completed(0), ElementsAre(ENOMEM)) << "not a hang";
  EXPECT_FALSE(ends_[0]->ring.starved());
  EXPECT_EQ(ends_[0]->ring.in_flight(), 0u);
}

// What persistent pools hold they never give back: there is nothing to wait for.
TEST_F(Shortage, PersistentPoolsOfOtherQueuesAreNotWaitedFor) {
  ASSERT_NO_FATAL_FAILURE(attach(Way::persistent));
  leave_grants(8);
  EXPECT_EQ(submit(0, 8), 0);
  EXPECT_EQ(submit(1, 1), ENOMEM);
  EXPECT_THAT(answer(0), ElementsAre(8));
  EXPECT_EQ(submit(1, 1), ENOMEM);
  EXPECT_EQ(submit(0, 32), 0) << "its own pool still serves it";
  EXPECT_THAT(answer(0), ElementsAre(8));
}

TEST_F(Shortage, EveryGrantIsCountedAndTheGaugesEndAtZero) {
  ASSERT_NO_FATAL_FAILURE(attach(Way::callers_pages));
  leave_grants(100);
  EXPECT_EQ(submit(0, 16), 0);
  const QueueCounters& counters = ends_[0]->counters;
  EXPECT_EQ(counters.get(Counter::grants_issued), 16u + 32u) << "its pages, and the pool of indirect pages";
  EXPECT_EQ(counters.get(Gauge::grants_in_use), 16u + 32u);
  EXPECT_EQ(counters.get(Gauge::persistent_cached), 32u);
  EXPECT_EQ(counters.get(Gauge::requests_in_flight), 1u);
  answer(0);
  EXPECT_EQ(counters.get(Gauge::requests_in_flight), 0u) << "without another submission";
  EXPECT_EQ(counters.get(Counter::grants_ended), 16u);
  EXPECT_EQ(counters.get(Gauge::grants_in_use), 32u);
  ends_[0]->ring.detach(Ring<FicklePlatform>::Until::for_good);
  EXPECT_EQ(counters.get(Gauge::grants_in_use), 0u);
  EXPECT_EQ(counters.get(Gauge::persistent_cached), 0u);
}

}  // namespace
}  // namespace xblk::blkfront
