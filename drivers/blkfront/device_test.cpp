// The life of a connected device: its size changes, its backend is replaced under it, its keys say what is in force.
#include <gtest/gtest.h>

#include <array>
#include <cerrno>
#include <string>
#include <vector>

#include "drivers/blkfront/frontend_testing.hpp"

namespace xblk::blkfront {
namespace {

class DeviceTest : public FrontendTest {
 protected:
  // As xen_vbd_resize() of blkback: the size, then the state once more, which is what the frontend watches.
  void resize_to(const std::string& sectors) {
    back_->write("sectors", sectors);
    back_->set_state("4");
    device_->turn();
  }
  // The backend ends without a word: its mappings and its end of the channel vanish.
  void backend_dies() { back_->release(); }
  void successor_takes_over() {
    const blkif::BackendOffer offered = back_->offer();
    back_ = make_backend();
    back_->offer() = offered;
    back_->take_over();
    back_->notify();  // "something may have changed": it knows nothing of the frontend's sleep
  }
};

// ---- live resize ---------------------------------------------------------------------------------------------------

TEST_F(DeviceTest, AGrowingDeviceTakesIoBeyondItsOldEnd) {
  ASSERT_NO_FATAL_FAILURE(connect());
  EXPECT_EQ(submit(IoOp::write, 8192, 8).error().code, EINVAL);
  back_->offer().sectors = Sectors(16384);
  resize_to("16384");
  EXPECT_EQ(device_->info().capacity, Sectors(16384));
  EXPECT_TRUE(device_->connected());
  const auto request = ask(IoOp::write, 16376, 8);
  EXPECT_EQ(request.sector, Sectors(16376));
  answer(request);
  EXPECT_EQ(completion(), 0);
  EXPECT_EQ(submit(IoOp::write, 16384, 8).error().code, EINVAL);
}

TEST_F(DeviceTest, AShrinkingDeviceRefusesIoBeyondItsNewEndAndWhatIsInFlightIsTheBackends) {
  ASSERT_NO_FATAL_FAILURE(connect());
  const auto request = ask(IoOp::read, 8184, 8);
  resize_to("4096");
  EXPECT_EQ(device_->info().capacity, Sectors(4096));
  EXPECT_EQ(submit(IoOp::read, 4096, 8).error().code, EINVAL);
  EXPECT_EQ(submit(IoOp::read, 4089, 8).error().code, EINVAL);
  answer(request, blkif::ResponseStatus::error);
  EXPECT_EQ(completion(), EIO);
  answer(ask(IoOp::read, 4088, 8));
  EXPECT_EQ(completion(), 0);
  EXPECT_TRUE(device_->connected());
}

TEST_F(DeviceTest, ASizeThatMakesNoSenseChangesNothing) {
  back_->offer().sector_size = back_->offer().physical_sector_size = 4096;
  ASSERT_NO_FATAL_FAILURE(connect());
  for (const char* sectors : {"0", "-1", "junk", "", "8193", "99999999999999999999"}) {
    resize_to(sectors);
    EXPECT_EQ(device_->info().capacity, Sectors(8192)) << sectors;
    EXPECT_TRUE(device_->connected());
  }
  ASSERT_TRUE(back_keys_.remove(std::string(kBackPath) + "/sectors"));
  back_->set_state("4");
  device_->turn();
  EXPECT_EQ(device_->info().capacity, Sectors(8192));
}

// ---- a backend that is replaced ------------------------------------------------------------------------------------

TEST_F(DeviceTest, ASuccessorAnswersWhatIsOpenAndEachIoCompletesOnce) {
  ASSERT_NO_FATAL_FAILURE(connect());
  const auto first = ask(IoOp::read, 0, 8);
  const auto second = ask(IoOp::write, 8, 8);
  ASSERT_TRUE(submit(IoOp::read, 16, 8));
  answer(first);
  backend_dies();
  ASSERT_TRUE(submit(IoOp::write, 24, 8)) << "nobody hears the event";
  successor_takes_over();
  device_->turn();
  EXPECT_TRUE(device_->connected());
  EXPECT_EQ(completion(), 0) << "what the old backend had answered";
  EXPECT_EQ(completion(), std::nullopt);
  const auto again = take();
  EXPECT_EQ(again.id, second.id) << "taken, but not answered";
  const auto third = take();
  const auto fourth = take();
  EXPECT_FALSE(back_->take_request().has_value());
  for (const auto& request : {again, third, fourth}) answer(request);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(completion(), 0);
  EXPECT_EQ(completion(), std::nullopt);
  answer(ask(IoOp::read, 0, 8));
  EXPECT_EQ(completion(), 0) << "and on it goes";
  EXPECT_EQ(count(Counter::responses_ok), 5u);
}

// The parameter is whether grants are persistent: the mappings of the old backend are gone with it.
class Replaced : public DeviceTest, public testing::WithParamInterface<bool> {};
INSTANTIATE_TEST_SUITE_P(Persistent, Replaced, testing::Bool(),
                         [](const auto& test) { return test.param ? "persistent" : "granted_per_request"; });

TEST_P(Replaced, ASleeperSleepsThroughTheChangeOfBackends) {
  back_->offer().persistent = GetParam();
  ASSERT_NO_FATAL_FAILURE(connect({{"polling", "event"}}));
  const auto request = ask(IoOp::read, 0, 8);
  const auto mapped = back_->map(request.direct_segments()[0].gref);
  env_.at(micros(50), [&] {
    back_->unmap(mapped);
    backend_dies();
  });
  env_.at(millis(200), [this] { successor_takes_over(); });
  env_.at(millis(200) + micros(10), [&] {
    const auto again = take();
    EXPECT_EQ(again.id, request.id);
    EXPECT_TRUE(answer(again)) << "the frontend asked for an event before the old backend died";
  });
  std::array<Completion, 2> completions;
  EXPECT_EQ(channel_->reap(1, completions, kForever), 1u);
  EXPECT_EQ(env_.now(), Instant(0) + millis(200) + micros(10));
  EXPECT_EQ(completions[0].error, 0);
  EXPECT_EQ(channel_->reap(1, completions, kForever), 0u);
  EXPECT_EQ(count(Counter::events_spurious), 1u) << "the successor's greeting";
}

// ---- a backend that ends (states row of the security list) ----------------------------------------------------------

TEST_F(DeviceTest, ABackendThatJumpsToClosedEndsTheDeviceWithAReason) {
  ASSERT_NO_FATAL_FAILURE(connect());
  const auto request = ask(IoOp::read, 0, 8);
  EXPECT_EQ(request.op, blkif::Op::read);
  back_->release();
  back_->set_state("6");
  device_->turn();
  EXPECT_EQ(completion(), ENODEV);
  EXPECT_TRUE(device_->closed());
  EXPECT_EQ(back_->frontend_state(), "6");
  EXPECT_NE(device_->failure(), "");
  EXPECT_EQ(submit(IoOp::read, 0, 8).error().code, ENODEV);
  EXPECT_EQ(count(Counter::grants_issued), count(Counter::grants_ended)) << "everything is given back at once";
}

TEST_F(DeviceTest, ABackendThatClosesWithIoInFlightMayStillAnswerIt) {
  ASSERT_NO_FATAL_FAILURE(connect());
  const auto request = ask(IoOp::read, 0, 8);
  back_->set_state("5");
  device_->turn();
  EXPECT_EQ(back_->frontend_state(), "5") << "it waits";
  EXPECT_EQ(submit(IoOp::read, 0, 8).error().code, EAGAIN);
  answer(request);
  device_->turn();
  EXPECT_EQ(completion(), 0);
  EXPECT_EQ(back_->frontend_state(), "6");
}

// Two watches for one state, and a state that is of no use: the rings are set up once.
TEST_F(DeviceTest, ASecondInitWaitAndAConnectedWithoutKeysAreSurvived) {
  device_ =
      std::make_unique<Device<TestPlatform>>(env_, *guest_, front_keys_, Device<TestPlatform>::Options{kFrontPath, {}},
                                             StatisticsFile::anonymous(End::front, blkif::kQueuesMax));
  ASSERT_TRUE(device_->start());
  back_->publish_limits();
  device_->turn();
  const std::string ring = front_key("ring-ref");
  back_->set_state("2");
  device_->turn();
  EXPECT_EQ(front_key("ring-ref"), ring);
  EXPECT_EQ(back_->frontend_state(), "3");
  back_->set_state("4");
  device_->turn();
  EXPECT_FALSE(device_->connected());
  EXPECT_NE(device_->failure().find("sectors"), std::string::npos) << device_->failure();
  EXPECT_EQ(back_->frontend_state(), "6");
}

// ---- what the keys say ---------------------------------------------------------------------------------------------

TEST_F(DeviceTest, EveryPolicyInForceIsPublishedAndGoneAfterwards) {
  back_->offer().persistent = false;
  back_->offer().limits.ring_page_order_max = 1;
  back_->offer().flush = true;
  ASSERT_NO_FATAL_FAILURE(connect({{"queues", "4"}, {"ring-page-order", "3"}, {"event-holdoff", "5"}}));
  for (const auto& key : blkif::policy_keys()) {
    if (!key.applies_to(blkif::PolicyEnd::front)) continue;
    EXPECT_NE(front_key("xblk-negotiated/" + std::string(key.name)), "") << key.name;
  }
  EXPECT_EQ(front_key("xblk-negotiated/persistent"), "0");
  EXPECT_EQ(front_key("xblk-negotiated/queues"), "1") << "all that the backend serves";
  EXPECT_EQ(front_key("xblk-negotiated/ring-page-order"), "1");
  EXPECT_EQ(front_key("xblk-negotiated/event-holdoff"), "5");
  EXPECT_EQ(front_key("xblk-negotiated/ordering"), "flush");
  close_and_expect_no_grants();
  EXPECT_EQ(front_key("xblk-negotiated/queues"), "");
}

TEST_F(DeviceTest, ABackendThatWritesItsKeysInALoopDoesNotKeepTheControlThread) {
  ASSERT_NO_FATAL_FAILURE(connect());
  for (int i = 0; i < 5000; ++i) back_->set_state("4");
  for (int turns = 0; turns < 10; ++turns) device_->turn();
  EXPECT_TRUE(device_->connected());
  answer(ask(IoOp::read, 0, 8));
  EXPECT_EQ(completion(), 0);
}

}  // namespace
}  // namespace xblk::blkfront
