// What the backend's rings do under each policy, step by step: the frontend is scripted, the store finishes an
// operation when the test says so, and every count is exact.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <memory>
#include <vector>

#include "drivers/blkback/connection.hpp"
#include "drivers/peer/held_store.hpp"
#include "drivers/peer/scripted_front.hpp"
#include "drivers/scenarios/model_rig.hpp"

namespace xblk::scenarios {
namespace {

using blkif::Op;
using Front = peer::ScriptedFront<ModelPlatform>;
using testing::ElementsAre;
using testing::IsEmpty;

constexpr DomId kGuest{1};

// Attached rings are stepped by the test alone.
class ByHand final : public blkback::RingRunner<env::VirtualEnv::Waitable> {
 public:
  void attach(blkback::RingStep& ring, env::VirtualEnv::Waitable, const env::VirtualEnv::Waitable*) override {
    rings.push_back(&ring);
  }
  void detach(blkback::RingStep& ring) override {
    for (int i = 0; i < 100 && !ring.idle(); ++i) ring.step(0);
    EXPECT_TRUE(ring.idle()) << "what is in flight at a disconnect must end";
    std::erase(rings, &ring);
  }
  void wake() override { ++wakes; }
  std::vector<blkback::RingStep*> rings;
  int wakes = 0;
};

class RingPolicies : public testing::Test {
 protected:
  void connect(blkif::BackPolicy policy, std::size_t queues = 1) {
    policy.queues = static_cast<std::uint32_t>(queues);
    policy.persistent_unused_ms = 0;  // or an idle ring would wake to purge
    blkback::Connection<ModelPlatform>::Agreement agreement{kGuest, {}, policy, {policy.queues, 0, 0}, false};
    for (std::size_t q = 0; q < queues; ++q) {
      fronts_.push_back(std::make_unique<Front>(*guest_, keys_, "/front" + std::to_string(q)));
      fronts_[q]->publish();
      agreement.offer.queues.push_back(fronts_[q]->offer().queues.at(0));
    }
    agreement.offer.persistent = true;
    open(std::move(agreement));
    data_ = fronts_[0]->allocate(1);
    gref_ = fronts_[0]->grant(data_, 0);
  }
  void open(blkback::Connection<ModelPlatform>::Agreement agreement) {
    agreement_ = agreement;
    auto opened =
        blkback::Connection<ModelPlatform>::open(env_, dom0_, std::move(agreement), store_, std::span(counters_));
    ASSERT_TRUE(opened) << opened.error().message;
    connection_ = std::move(*opened);
    blkback::RingRunner<env::VirtualEnv::Waitable>* const runners[] = {&runner_};
    connection_->start(runners);
  }

  // Pushes one request to queue q; the id says which one it was.
  void ask(Op op, std::uint64_t id, std::size_t q = 0, bool with_data = true) {
    blkif::Request request;
    request.op = op;
    request.id = id;
    const blkif::Segment segment{gref_, 0, 7};
    request.segment_count = with_data ? 1 : 0;
    fronts_[q]->put(request, std::span(&segment, request.segment_count));
    auto& indexes = fronts_[q]->indexes();
    const std::uint32_t old = indexes.req_prod;
    const std::uint32_t event = platform::publish_and_load(indexes.req_prod, old + 1, indexes.req_event);
    if (blkif::should_notify(old, old + 1, event)) guest_->notify(fronts_[q]->port());
  }
  void step(std::size_t q = 0) {
    runner_.rings.at(q)->take_event();
    runner_.rings.at(q)->step(64);
  }
  void step_without_event(std::size_t q = 0) { runner_.rings.at(q)->step(64); }
  std::optional<Instant> arm(std::size_t q = 0) { return runner_.rings.at(q)->arm(env_.now()); }
  std::vector<std::uint64_t> answered(std::size_t q = 0) {
    std::vector<std::uint64_t> ids;
    while (const auto response = fronts_[q]->take_response()) {
      ids.push_back(response->id);
      last_status_ = response->status;
    }
    return ids;
  }
  std::uint64_t count(Counter c, std::size_t q = 0) { return counters_[q].get(c); }

  void TearDown() override {
    while (!store_.held.empty()) store_.finish_oldest();
    connection_.reset();
    fronts_.clear();
    guest_.reset();
    EXPECT_EQ(hypervisor_.usage(), hypervisor::HypervisorUsage{});
  }

  env::VirtualEnv env_;
  hypervisor::Hypervisor<env::VirtualEnv> hypervisor_{env_, {}};
  hypervisor::Dom0<env::VirtualEnv> dom0_{hypervisor_};
  std::unique_ptr<hypervisor::InProcessGuest<env::VirtualEnv>> guest_ =
      hypervisor::InProcessGuest<env::VirtualEnv>::create(hypervisor_, kGuest, 64).value();
  env::MemoryStore tree_;
  env::MemoryKeys keys_{tree_, kDom0};
  peer::HeldStore store_;
  ByHand runner_;
  std::array<QueueCounters, 4> counters_;
  std::vector<std::unique_ptr<Front>> fronts_;
  blkback::Connection<ModelPlatform>::Agreement agreement_;
  std::unique_ptr<blkback::Connection<ModelPlatform>> connection_;
  platform::PageBlock data_{};
  GrantRef gref_{};
  blkif::ResponseStatus last_status_{};
};

// ---- final-check (seed 001) ----------------------------------------------------------------------------------------

TEST_F(RingPolicies, DispatchCheckTakesWhatArrivesWhileOthersAreInFlight) {
  connect({.final_check = blkif::FinalCheck::dispatch});
  ask(Op::write, 1);
  step();
  EXPECT_EQ(arm(), Instant::never());
  ask(Op::write, 2);
  step();
  EXPECT_EQ(store_.held.size(), 2u) << "both at the store at once";
  EXPECT_EQ(count(Counter::requests_deferred), 0u);
}

TEST_F(RingPolicies, ResponseCheckLeavesWhatArrivesUntilAResponseIsMade) {
  connect({.final_check = blkif::FinalCheck::response});
  ask(Op::write, 1);
  step();
  EXPECT_EQ(arm(), Instant::never());
  ask(Op::write, 2);
  step();  // no event was asked for, so none has come
  EXPECT_EQ(store_.held.size(), 1u) << "deferred by the one in flight";
  EXPECT_EQ(count(Counter::requests_deferred), 1u);
  EXPECT_EQ(count(Counter::events_received), 1u);
  EXPECT_EQ(arm(), Instant::never()) << "it sleeps although there is a request";
  store_.finish_oldest();
  step();
  EXPECT_THAT(answered(), ElementsAre(1));
  EXPECT_EQ(store_.held.size(), 1u) << "the response found it";
  store_.finish_oldest();
  step();
  EXPECT_THAT(answered(), ElementsAre(2));
  EXPECT_EQ(arm(), Instant::never());
  ask(Op::write, 3);  // nothing in flight: its event was asked for
  step();
  EXPECT_EQ(count(Counter::events_received), 2u);
  EXPECT_EQ(store_.held.size(), 1u);
}

// ---- event hold-off ------------------------------------------------------------------------------------------------

TEST_F(RingPolicies, HoldOffAsksOneEventForSeveralRequests) {
  connect({.event_holdoff = 3, .event_holdoff_us = 100});
  ask(Op::write, 1);
  step();
  EXPECT_EQ(arm(), env_.now() + micros(100)) << "a promise to look again";
  ask(Op::write, 2);
  ask(Op::write, 3);
  step();
  EXPECT_EQ(count(Counter::events_received), 1u) << "two of three: no event yet";
  EXPECT_EQ(store_.held.size(), 3u) << "a look without an event finds them all the same";
  ASSERT_TRUE(arm());
  for (const std::uint64_t id : {4, 5, 6}) ask(Op::write, id);
  step();
  EXPECT_EQ(count(Counter::events_received), 2u) << "the third one crossed the index";
  EXPECT_EQ(count(Counter::holdoff_timeouts), 0u);
}

TEST_F(RingPolicies, HoldOffEndsWithItsTimeLimitAndThenTheRingSleepsWithoutOne) {
  connect({.event_holdoff = 8, .event_holdoff_us = 100});
  ask(Op::write, 1);
  step();
  const auto look_again = arm();
  ASSERT_EQ(look_again, env_.now() + micros(100));
  ask(Op::write, 2);  // one of eight: without the time limit it would wait for ever
  env_.advance_to(*look_again);
  step();
  EXPECT_EQ(store_.held.size(), 2u);
  EXPECT_EQ(arm(), env_.now() + micros(100)) << "it took something: the next hold-off";
  EXPECT_EQ(count(Counter::holdoff_timeouts), 1u);
  env_.advance_to(env_.now() + micros(100));
  step();
  EXPECT_EQ(arm(), Instant::never()) << "nothing came: an event at the next request, and no more waking for nothing";
  ask(Op::write, 3);
  step();
  EXPECT_EQ(store_.held.size(), 3u);
  EXPECT_EQ(count(Counter::events_held_off), 2u);
  EXPECT_EQ(count(Counter::holdoff_timeouts), 2u);
}

// ---- barriers ------------------------------------------------------------------------------------------------------

TEST_F(RingPolicies, ABarrierDrainsFlushesWritesFlushesAndHoldsBackWhatFollows) {
  connect({});
  ask(Op::write, 1);
  ask(Op::write_barrier, 2);
  ask(Op::write, 3);
  step();
  EXPECT_THAT(store_.operations(), ElementsAre(store::Op::write)) << "the barrier waits for the write before it";
  store_.finish_oldest();
  step();
  EXPECT_THAT(store_.operations(), ElementsAre(store::Op::flush));
  store_.finish_oldest();
  step();
  EXPECT_THAT(store_.operations(), ElementsAre(store::Op::write)) << "the barrier's own data";
  store_.finish_oldest();
  step();
  EXPECT_THAT(store_.operations(), ElementsAre(store::Op::flush)) << "durable before it is answered";
  EXPECT_THAT(answered(), ElementsAre(1));
  store_.finish_oldest();
  step();
  EXPECT_THAT(answered(), ElementsAre(2));
  step();
  EXPECT_THAT(store_.operations(), ElementsAre(store::Op::write));
  EXPECT_EQ(count(Counter::barrier_drains), 1u);
}

TEST_F(RingPolicies, AnEmptyBarrierIsOneFlush) {
  connect({});
  ask(Op::write_barrier, 1, 0, /*with_data=*/false);
  step();
  EXPECT_THAT(store_.operations(), ElementsAre(store::Op::flush));
  store_.finish_oldest();
  step();
  EXPECT_THAT(answered(), ElementsAre(1));
  EXPECT_EQ(last_status_, blkif::ResponseStatus::okay);
}

TEST_F(RingPolicies, AFailedFlushFailsTheBarrierAndWritesNothing) {
  connect({});
  ask(Op::write_barrier, 1);
  step();
  store_.finish_oldest(EIO);
  step();
  EXPECT_THAT(answered(), ElementsAre(1));
  EXPECT_EQ(last_status_, blkif::ResponseStatus::error);
  EXPECT_THAT(store_.operations(), IsEmpty());
}

TEST_F(RingPolicies, ABarrierDrainsTheOtherRingsOfItsDevice) {
  connect({}, 2);
  ask(Op::write, 10, 1);
  step(1);
  ask(Op::write_barrier, 1, 0);
  step(0);
  EXPECT_THAT(store_.operations(), ElementsAre(store::Op::write)) << "ring 1 has a write in flight";
  ask(Op::write, 11, 1);
  step(1);
  EXPECT_EQ(store_.held.size(), 1u) << "ring 1 takes nothing while ring 0 drains the device";
  EXPECT_EQ(arm(1), Instant::never()) << "and sleeps; the gate wakes it";
  store_.finish_oldest();
  step(1);
  EXPECT_THAT(answered(1), ElementsAre(10));
  EXPECT_EQ(runner_.wakes, 1) << "drained: the ring with the barrier is told";
  step(0);
  for (int part = 0; part < 3; ++part) {
    ASSERT_EQ(store_.held.size(), 1u) << part;
    step(1);
    store_.finish_oldest();
    step(0);
  }
  EXPECT_THAT(answered(0), ElementsAre(1));
  EXPECT_EQ(runner_.wakes, 2) << "the gate is open";
  step(1);
  EXPECT_THAT(store_.operations(), ElementsAre(store::Op::write));
}

TEST_F(RingPolicies, TwoRingsWithBarriersTakeTurns) {
  connect({}, 2);
  ask(Op::write_barrier, 1, 0, false);
  ask(Op::write_barrier, 2, 1, false);
  step(0);
  step(1);
  ASSERT_EQ(store_.held.size(), 1u);
  store_.finish_oldest();
  step(0);
  EXPECT_THAT(answered(0), ElementsAre(1));
  step(1);
  ASSERT_EQ(store_.held.size(), 1u);
  store_.finish_oldest();
  step(1);
  EXPECT_THAT(answered(1), ElementsAre(2));
}

TEST_F(RingPolicies, ABarrierThatStillDrainsFailsAtDisconnect) {
  connect({}, 2);
  ask(Op::write, 10, 1);
  step(1);
  ask(Op::write_barrier, 1, 0);
  step(0);
  store_.finish_oldest();
  connection_->stop();
  EXPECT_THAT(answered(0), ElementsAre(1));
  EXPECT_EQ(last_status_, blkif::ResponseStatus::error);
}

TEST_F(RingPolicies, BarriersAndFlushesAreRefusedWhereTheyAreNotOffered) {
  connect({.ordering = blkif::Ordering::none});
  ask(Op::write_barrier, 1);
  step();
  EXPECT_THAT(answered(), ElementsAre(1));
  EXPECT_EQ(last_status_, blkif::ResponseStatus::not_supported);
  ask(Op::flush_diskcache, 2, 0, false);
  step();
  EXPECT_THAT(answered(), ElementsAre(2));
  EXPECT_EQ(last_status_, blkif::ResponseStatus::not_supported);
}

// ---- a successor on a live ring ------------------------------------------------------------------------------------

TEST_F(RingPolicies, ASuccessorTakesAgainWhatWasTakenWithoutAnAnswer) {
  connect({});
  ask(Op::write, 1);
  ask(Op::write, 2);
  step();
  store_.finish_oldest();
  step();
  EXPECT_THAT(answered(), ElementsAre(1));
  ask(Op::write, 3);
  // The backend dies with request 2 at its store and request 3 unseen: the guest's memory stays as it is at that
  // moment.
  std::array<std::byte, kPageSize> ring_at_death;
  std::memcpy(ring_at_death.data(), &fronts_[0]->indexes(), kPageSize);
  while (!store_.held.empty()) store_.finish_oldest();
  connection_.reset();
  std::memcpy(&fronts_[0]->indexes(), ring_at_death.data(), kPageSize);
  const auto agreement = agreement_;
  open(agreement);
  step_without_event();
  EXPECT_EQ(store_.held.size(), 2u) << "2 again, and 3";
  store_.finish_oldest();
  store_.finish_oldest();
  step();
  EXPECT_THAT(answered(), ElementsAre(2, 3));
}

}  // namespace
}  // namespace xblk::scenarios
