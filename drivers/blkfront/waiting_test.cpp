// How a channel waits, to the microsecond of virtual time: events held off, a backend that sends them for nothing, and
// devices that end meanwhile.
#include <gtest/gtest.h>

#include <array>
#include <cerrno>

#include "drivers/blkfront/frontend_testing.hpp"

namespace xblk::blkfront {
namespace {

class Waiting : public FrontendTest {
 protected:
  void connect_with_holdoff(unsigned responses, unsigned limit_us) {
    ASSERT_NO_FATAL_FAILURE(connect({{"polling", "event"},
                                     {"event-holdoff", std::to_string(responses)},
                                     {"event-holdoff-us", std::to_string(limit_us)}}));
  }
  // Reads that the backend has taken and not answered; then the clock starts.
  void ask_for(unsigned reads) {
    for (unsigned i = 0; i < reads; ++i) open_.push_back(ask(IoOp::read, 8 * i, 8));
    ASSERT_EQ(env_.now(), Instant(0));
  }
  // At that time the backend answers the oldest request; whether with an event is asserted.
  void answer_at(unsigned us, bool with_event) {
    env_.at(micros(us), [this, with_event] {
      EXPECT_EQ(answer(open_.front()), with_event) << "at " << env_.now().ns() << " ns";
      open_.erase(open_.begin());
    });
  }
  // How many completions there are when the reap returns, at least `min` of them or at the timeout.
  unsigned reap(unsigned min, Nanos timeout) { return channel_->reap(min, completions_, timeout); }
  [[nodiscard]] std::int64_t now_us() const { return env_.now().ns() / 1000; }

  std::vector<blkif::Request> open_;
  std::array<Completion, 8> completions_;
};

// ---- hold-off ------------------------------------------------------------------------------------------------------

TEST_F(Waiting, WithoutAHoldOffTheFirstResponseEndsTheSleep) {
  ASSERT_NO_FATAL_FAILURE(connect_with_holdoff(1, 100));
  ask_for(4);
  answer_at(10, true);
  EXPECT_EQ(reap(1, kForever), 1u);
  EXPECT_EQ(now_us(), 10);
  EXPECT_EQ(count(Counter::events_received), 1u);
  EXPECT_EQ(count(Counter::events_held_off), 0u);
}

TEST_F(Waiting, OneEventIsAskedForSeveralResponses) {
  ASSERT_NO_FATAL_FAILURE(connect_with_holdoff(3, 100));
  ask_for(4);
  answer_at(10, false);
  answer_at(20, false);
  answer_at(30, true);
  EXPECT_EQ(reap(1, kForever), 3u);
  EXPECT_EQ(now_us(), 30);
  EXPECT_EQ(count(Counter::events_received), 1u);
  EXPECT_EQ(count(Counter::events_held_off), 1u);
  EXPECT_EQ(count(Counter::holdoff_timeouts), 0u);
}

TEST_F(Waiting, TheTimeLimitEndsAHoldOffAndWhatIsThereIsTaken) {
  ASSERT_NO_FATAL_FAILURE(connect_with_holdoff(3, 100));
  ask_for(4);
  answer_at(10, false);
  EXPECT_EQ(reap(1, kForever), 1u);
  EXPECT_EQ(now_us(), 100);
  EXPECT_EQ(count(Counter::events_received), 0u);
  EXPECT_EQ(count(Counter::holdoff_timeouts), 1u);
  answer_at(110, false);
  answer_at(120, false);
  answer_at(130, true);
  EXPECT_EQ(reap(3, kForever), 3u) << "the next sleep is held off again";
  EXPECT_EQ(now_us(), 130);
  EXPECT_EQ(count(Counter::events_held_off), 2u);
  EXPECT_EQ(count(Counter::holdoff_timeouts), 1u);
}

TEST_F(Waiting, AfterAHoldOffInVainTheVeryNextResponseBringsAnEvent) {
  ASSERT_NO_FATAL_FAILURE(connect_with_holdoff(3, 100));
  ask_for(4);
  answer_at(250, true);
  EXPECT_EQ(reap(1, kForever), 1u);
  EXPECT_EQ(now_us(), 250);
  EXPECT_EQ(count(Counter::events_held_off), 1u);
  EXPECT_EQ(count(Counter::holdoff_timeouts), 1u);
  EXPECT_EQ(count(Counter::events_received), 1u);
}

TEST_F(Waiting, AHoldOffAsksForNoMoreThanIsOwed) {
  ASSERT_NO_FATAL_FAILURE(connect_with_holdoff(512, 100));
  ask_for(2);
  answer_at(10, false);
  answer_at(20, true);
  EXPECT_EQ(reap(1, kForever), 2u);
  EXPECT_EQ(now_us(), 20);
  open_.push_back(ask(IoOp::read, 0, 8));
  answer_at(30, true);
  EXPECT_EQ(reap(1, kForever), 1u);
  EXPECT_EQ(count(Counter::events_held_off), 1u) << "of one response there is nothing to hold off";
}

TEST_F(Waiting, ACallerThatIsInAHurryIsNotHeldOffLonger) {
  ASSERT_NO_FATAL_FAILURE(connect_with_holdoff(3, 100));
  ask_for(4);
  answer_at(10, false);
  EXPECT_EQ(reap(1, micros(40)), 1u);
  EXPECT_EQ(now_us(), 40);
  EXPECT_EQ(reap(4, micros(40)), 0u);
  EXPECT_EQ(now_us(), 80);
  EXPECT_EQ(count(Counter::events_held_off), 2u);
  EXPECT_EQ(count(Counter::holdoff_timeouts), 0u) << "its own limit came first";
}

TEST_F(Waiting, AResponseThatAnotherChannelTookWaitsForTheTimeLimitAtMost) {
  ASSERT_NO_FATAL_FAILURE(connect_with_holdoff(3, 100));
  ask_for(4);
  auto other = device_->open_channel(0).value();
  answer_at(10, false);
  env_.at(micros(20), [&] {
    Completion none;
    EXPECT_EQ(other->reap(0, {&none, 1}, Nanos(0)), 0u) << "it was not its own";
  });
  EXPECT_EQ(reap(1, kForever), 1u);
  EXPECT_EQ(now_us(), 100);
}

// ---- a backend that sends events for nothing (XSA-391) --------------------------------------------------------------

TEST_F(Waiting, ABackendThatSendsEventsForNothingIsListenedToLessAndLess_XSA391) {
  ASSERT_NO_FATAL_FAILURE(connect({{"polling", "event"}}));
  ask_for(1);
  for (unsigned us = 1; us < 5000; ++us) env_.at(micros(us), [this] { back_->notify(); });
  answer_at(3000, true);
  EXPECT_EQ(reap(1, kForever), 1u);
  EXPECT_EQ(count(Counter::events_received), 4u) << "of 3000";
  EXPECT_EQ(count(Counter::events_spurious), 4u);
  // Deaf from 4 us on, for 100, 200, 400, 800 and 1600 us: the answer is found at the end of the last.
  EXPECT_EQ(now_us(), 4 + 3100);
}

TEST_F(Waiting, AResponseMakesEventsWelcomeAgain_XSA391) {
  ASSERT_NO_FATAL_FAILURE(connect({{"polling", "event"}}));
  ask_for(2);
  for (unsigned us = 1; us <= 100; ++us) env_.at(micros(us), [this] { back_->notify(); });
  answer_at(101, true);
  EXPECT_EQ(reap(1, kForever), 1u);
  EXPECT_EQ(now_us(), 104);
  answer_at(1000, true);
  EXPECT_EQ(reap(1, kForever), 1u);
  EXPECT_EQ(now_us(), 1000) << "an event, and at once";
}

// ---- polling -------------------------------------------------------------------------------------------------------

TEST_F(Waiting, APollerNeedsNoEventAndOneThatFindsNothingSleeps) {
  ASSERT_NO_FATAL_FAILURE(connect({{"polling", "adaptive"}}));
  env_.have_a_spare_cpu();
  ask_for(3);
  answer_at(20, false);
  answer_at(35, false);
  EXPECT_EQ(reap(1, kForever), 1u);
  EXPECT_EQ(now_us(), 20);
  EXPECT_EQ(reap(1, kForever), 1u);
  EXPECT_EQ(now_us(), 35);
  EXPECT_EQ(count(Counter::polls), 35u + 2) << "one each microsecond, and those that found something";
  EXPECT_EQ(count(Counter::events_received), 0u);
  answer_at(500, true);
  EXPECT_EQ(reap(1, kForever), 1u);
  EXPECT_EQ(now_us(), 500);
  EXPECT_EQ(count(Counter::events_received), 1u);
}

// ---- nothing to wait for -------------------------------------------------------------------------------------------

TEST_F(Waiting, WithNothingInFlightAReapReturnsAtOnce) {
  ASSERT_NO_FATAL_FAILURE(connect());
  EXPECT_EQ(reap(1, kForever), 0u);
  ask_for(1);
  answer_at(10, true);
  EXPECT_EQ(reap(8, kForever), 1u) << "more than that will not come";
  EXPECT_EQ(now_us(), 10);
}

TEST_F(Waiting, AReapOnADeadDeviceReturns) {
  ASSERT_NO_FATAL_FAILURE(connect());
  ask_for(1);
  device_->backend_gone();
  EXPECT_EQ(reap(1, kForever), 1u);
  EXPECT_EQ(completions_[0].error, ENODEV);
  EXPECT_EQ(reap(1, kForever), 0u);
  EXPECT_EQ(submit(IoOp::read, 0, 8).error().code, ENODEV);
}

TEST_F(Waiting, ADeviceThatEndsMeanwhileEndsTheWait) {
  ASSERT_NO_FATAL_FAILURE(connect({{"polling", "event"}}));
  ask_for(2);
  env_.at(micros(50), [this] { device_->backend_gone(); });
  EXPECT_EQ(reap(2, kForever), 2u);
  EXPECT_EQ(now_us(), 50);
  EXPECT_EQ(completions_[0].error, ENODEV);
  EXPECT_EQ(completions_[1].error, ENODEV);
}

}  // namespace
}  // namespace xblk::blkfront
