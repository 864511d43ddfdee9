// The backend's worker in virtual time: when it sleeps, until when, and what wakes which ring.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "drivers/blkback/worker.hpp"
#include "drivers/env/virtual/virtual_env.hpp"

namespace xblk::scenarios {
namespace {

using blkback::StepResult;
using env::VirtualEnv;

// A ring that does what the test says, and stops the worker after `steps_left` steps.
class FakeRing final : public blkback::RingStep {
 public:
  FakeRing(std::atomic<bool>& stop, int steps) : steps_left(steps), stop_(stop) {}

  StepResult step(unsigned budget) override {
    budgets.push_back(budget);
    if (--steps_left <= 0) stop_ = true;
    return on_step ? on_step() : StepResult{};
  }
  std::optional<Instant> arm(Instant now) override {
    ++arms;
    return on_arm ? on_arm(now) : std::optional(Instant::never());
  }
  void maintain(Instant now) override { maintained.push_back(now); }
  void defer_events() override { ++deferrals; }
  void take_event() override { ++events; }
  [[nodiscard]] bool wants_polling() const override { return polling; }
  [[nodiscard]] bool idle() const override { return in_flight == 0; }
  void count_poll() override { ++polls; }
  void count_spurious_event() override { ++spurious; }
  void add_cpu(std::uint64_t) override {}

  std::function<StepResult()> on_step;
  std::function<std::optional<Instant>(Instant)> on_arm;
  std::vector<unsigned> budgets;
  std::vector<Instant> maintained;
  int steps_left, arms = 0, deferrals = 0, events = 0, polls = 0, spurious = 0, in_flight = 0;
  bool polling = false;

 private:
  std::atomic<bool>& stop_;
};

class WorkerTest : public testing::Test {
 protected:
  FakeRing& add_ring(int steps) {
    rings_.push_back(std::make_unique<FakeRing>(stop_, steps));
    doorbells_.push_back(std::make_unique<bool>(false));
    worker_.attach(*rings_.back(), doorbells_.back().get(), nullptr);
    return *rings_.back();
  }

  VirtualEnv env_;
  std::atomic<bool> stop_{false};
  blkback::Worker<VirtualEnv> worker_{env_};
  std::vector<std::unique_ptr<FakeRing>> rings_;
  std::vector<std::unique_ptr<bool>> doorbells_;
  bool rung_once_ = false;
};

TEST_F(WorkerTest, SleepsUntilTheEarliestInstantThatARingAskedFor) {
  FakeRing& early = add_ring(3);
  FakeRing& late = add_ring(100);
  early.on_arm = [](Instant now) { return now + micros(100); };
  late.on_arm = [](Instant now) { return now + micros(500); };
  worker_.run(stop_);
  // The attach woke it once; then one sleep of 100 us before each further step.
  EXPECT_EQ(env_.now(), Instant(0) + micros(200));
  EXPECT_EQ(late.budgets.size(), 3u) << "all rings are stepped when it wakes";
}

TEST_F(WorkerTest, DoesNotSleepWhileOneRingHasWork) {
  FakeRing& busy = add_ring(5);
  FakeRing& quiet = add_ring(100);
  busy.on_arm = [](Instant) { return std::nullopt; };
  quiet.on_arm = [](Instant now) { return now + micros(100); };
  worker_.run(stop_);
  EXPECT_EQ(env_.now(), Instant(0));
}

TEST_F(WorkerTest, ProgressOfOneRingKeepsAllAwakeWithoutArming) {
  FakeRing& busy = add_ring(4);
  FakeRing& quiet = add_ring(100);
  busy.on_step = [] { return StepResult{1, true}; };
  worker_.run(stop_);
  EXPECT_EQ(quiet.arms, 0);
  EXPECT_EQ(quiet.budgets.size(), 4u);
}

TEST_F(WorkerTest, AnEventIsTakenByItsRingAndIsSpuriousIfItFindsNothing) {
  FakeRing& rung = add_ring(3);
  FakeRing& other = add_ring(100);
  *doorbells_[0] = true;
  rung.on_arm = [this](Instant now) {
    if (rung_once_) *doorbells_[0] = false;
    rung_once_ = true;
    return now + micros(10);
  };
  worker_.run(stop_);
  EXPECT_EQ(rung.events, 1);
  EXPECT_EQ(rung.spurious, 1);
  EXPECT_EQ(other.events, 0);
  EXPECT_EQ(other.spurious, 0);
}

TEST_F(WorkerTest, DetachAnswersWhatIsInFlightAndTakesNothingNew) {
  FakeRing& ring = add_ring(100);
  ring.in_flight = 3;
  ring.on_step = [&ring] {
    --ring.in_flight;
    return StepResult{0, true};
  };
  worker_.detach(ring);
  EXPECT_THAT(ring.budgets, testing::ElementsAre(0u, 0u, 0u));
  FakeRing& successor = add_ring(2);
  worker_.run(stop_);
  EXPECT_EQ(successor.budgets.size(), 2u);
  EXPECT_EQ(ring.budgets.size(), 3u) << "never stepped again";
}

TEST_F(WorkerTest, MaintainsItsRingsFromTimeToTimeAlsoWhenTheyAreBusy) {
  FakeRing& ring = add_ring(500);
  ring.on_step = [this] {
    env_.advance_to(env_.now() + micros(20));
    return StepResult{1, true};
  };
  worker_.run(stop_);
  // 500 steps of 20 us, the clock read each 64 turns (1.28 ms), maintenance at most once per millisecond.
  EXPECT_EQ(ring.maintained.size(), 500u / 64);
}

TEST_F(WorkerTest, DoesNotPollWhereSpinningHelpsNobody) {
  FakeRing& ring = add_ring(3);
  ring.polling = true;  // but a virtual CPU is always wanted by somebody else
  ring.on_arm = [](Instant now) { return now + micros(5); };
  worker_.run(stop_);
  EXPECT_EQ(ring.polls, 0);
  EXPECT_EQ(ring.deferrals, 0);
}

}  // namespace
}  // namespace xblk::scenarios
