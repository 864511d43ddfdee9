// The traps T1 to T5 of renegotiation that the field has fallen into: what is in force at the two ends drifts apart.
// T6 (numbers of queues that do not fit their text) cannot happen with 64 queues; T7 (barriers of several rings) is in
// scenarios/ring_policies_test.cpp.
#include <gtest/gtest.h>

#include <string>

#include "drivers/scenarios/model_load.hpp"
#include "drivers/scenarios/model_rig.hpp"

namespace xblk::scenarios {
namespace {

constexpr DomId kGuest{1};

class Trap : public testing::Test {
 protected:
  blkfront::Device<ModelPlatform>& connect(const VbdOptions& options) {
    auto& device = rig_.add_guest(kGuest, options);
    EXPECT_TRUE(rig_.run_until([&] { return device.connected(); })) << device.failure();
    return device;
  }
  void set_back_policy(const std::string& name, const std::string& value) {
    ASSERT_TRUE(rig_.dom0_keys().write(ModelRig::backend_path(kGuest) + "/xblk-policy/" + name, value));
  }
  void reconnect(blkfront::Device<ModelPlatform>& device) {
    const std::uint32_t before = device.statistics().header().generation.load();
    ASSERT_TRUE(rig_.dom0_keys().write(ModelRig::frontend_path(kGuest) + "/xblk-policy/reconnect",
                                       std::to_string(++reconnects_)));
    ASSERT_TRUE(rig_.run_until([&] {
      return device.connected() && device.statistics().header().generation.load() == before + 1;
    })) << device.failure();
  }
  // Verified I/O on sectors of its own, each time others.
  void do_io(blkfront::Device<ModelPlatform>& device) {
    auto channel = device.open_channel(parts_used_).value();
    Workload load(device, *channel, {.first = Sectors(1024 * parts_used_), .length = Sectors(1024)}, 1);
    ++parts_used_;
    const auto idle = [&] {
      load.turn();
      return load.in_flight() == 0;
    };
    while (load.completed() < 100) {
      load.turn();
      rig_.turn();
    }
    load.drain();
    EXPECT_TRUE(rig_.run_until(idle));
    EXPECT_EQ(load.mismatches() + load.errors(), 0u);
  }
  std::string negotiated(const std::string& name) {
    return rig_.dom0_keys().read(ModelRig::backend_path(kGuest) + "/xblk-negotiated/" + name).value_or("");
  }

  ModelRig rig_{5};
  int reconnects_ = 0;
  unsigned parts_used_ = 0;
};

// A backend that is replaced beside a connected frontend must not use persistent grants that the frontend knows nothing
// of: it would find its pages held, and give the disk up.
class TrapT1 : public Trap, public testing::WithParamInterface<const char*> {};
INSTANTIATE_TEST_SUITE_P(Persistent, TrapT1, testing::Values("0", "1"),
                         [](const auto& test) { return std::string(test.param) == "1" ? "was_on" : "was_off"; });

TEST_P(TrapT1, ASuccessorKeepsToWhatItsPredecessorOffered) {
  const std::string was = GetParam();
  auto& device = connect({.back_policy = {{"persistent", was}}});
  do_io(device);
  set_back_policy("persistent", was == "1" ? "0" : "1");
  ASSERT_TRUE(rig_.restart_backends());
  EXPECT_EQ(negotiated("persistent"), was);
  do_io(device);
  reconnect(device);
  EXPECT_NE(negotiated("persistent"), was) << "the next connect is another matter";
  do_io(device);
  close_and_expect_no_leak(rig_, device, kGuest);
}

// Limits that are lowered while a frontend uses more are not held against it until it asks again.
class TrapT2 : public Trap {};

TEST_F(TrapT2, ALimitThatIsLoweredHoldsFromTheNextOfferOn) {
  auto& device = connect({.front_policy = {{"queues", "4"}, {"ring-page-order", "2"}}});
  EXPECT_EQ(device.info().negotiated.queues, 4);
  set_back_policy("queues", "2");
  set_back_policy("ring-page-order", "0");
  do_io(device);
  EXPECT_EQ(device.info().negotiated.queues, 4) << "nothing changes under a connected frontend";
  reconnect(device);
  EXPECT_EQ(device.info().negotiated.queues, 2);
  EXPECT_EQ(device.info().negotiated.ring_page_order, 0u);
  do_io(device);
  close_and_expect_no_leak(rig_, device, kGuest);
}

// Keys of an earlier connection that the frontend leaves behind would have stale grants mapped.
class TrapT3 : public Trap {};

TEST_F(TrapT3, FewerQueuesAndSmallerRingsLeaveNoKeyOfTheLargerOnes) {
  auto& device = connect({.front_policy = {{"queues", "4"}, {"ring-page-order", "2"}}});
  const std::string front = ModelRig::frontend_path(kGuest);
  EXPECT_TRUE(rig_.dom0_keys().read(front + "/queue-3/ring-ref3"));
  for (const auto& [name, value] : blkif::KeyList{{"queues", "1"}, {"ring-page-order", "0"}}) {
    ASSERT_TRUE(rig_.dom0_keys().write(front + "/xblk-policy/" + name, value));
  }
  reconnect(device);
  for (const char* stale : {"multi-queue-num-queues", "ring-page-order", "queue-0", "queue-3", "ring-ref0"}) {
    EXPECT_FALSE(rig_.dom0_keys().read(front + "/" + stale)) << stale;
  }
  do_io(device);
  close_and_expect_no_leak(rig_, device, kGuest);
}

// A frontend that remembers a feature of the last backend sends the new one what it cannot do.
class TrapT4 : public Trap {};

TEST_F(TrapT4, FeaturesThatTheNewBackendLacksAreForgotten) {
  auto& device = connect({});
  EXPECT_TRUE(device.info().negotiated.discard);
  EXPECT_TRUE(device.info().negotiated.flush);
  EXPECT_TRUE(device.info().negotiated.persistent);
  set_back_policy("discard", "off");
  set_back_policy("ordering", "none");
  set_back_policy("persistent", "0");
  reconnect(device);
  EXPECT_FALSE(device.info().negotiated.discard);
  EXPECT_FALSE(device.info().negotiated.flush);
  EXPECT_FALSE(device.info().negotiated.persistent);
  auto channel = device.open_channel(0).value();
  for (const auto op : {blkfront::IoOp::discard, blkfront::IoOp::flush}) {
    const auto refused = channel->submit({op, Sectors(0), Sectors(op == blkfront::IoOp::discard ? 8 : 0)});
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, EOPNOTSUPP);
  }
  const QueueSample backend = backend_sample(rig_, kGuest);
  EXPECT_EQ(backend.get(Counter::requests_malformed), 0u) << "nothing of the kind was sent";
}

// I/O that was made for long requests meets a backend that takes short ones only.
class TrapT5 : public Trap {};

TEST_F(TrapT5, FewerSegmentsAfterAReconnectUnderLoadSplitTheSameIoInMorePieces) {
  auto& device = connect({.front_policy = {{"indirect-segments", "256"}}});
  auto channel = device.open_channel(0).value();
  Workload load(device, *channel, {.sectors_max = 512}, 3);
  for (const char* segments : {"0", "256", "16", "0", "64"}) {
    for (int i = 0; i < 200; ++i) {
      load.turn();
      rig_.turn();
    }
    set_back_policy("indirect-segments", segments);
    ASSERT_TRUE(rig_.dom0_keys().write(ModelRig::frontend_path(kGuest) + "/xblk-policy/reconnect",
                                       std::to_string(++reconnects_)));
    ASSERT_TRUE(rig_.run_until([&] {
      load.turn();
      return device.connected() && device.info().negotiated.indirect_segments_max == std::stoul(segments);
    })) << segments;
  }
  load.drain();
  EXPECT_TRUE(rig_.run_until([&] {
    load.turn();
    return load.in_flight() == 0;
  }));
  EXPECT_EQ(load.mismatches() + load.errors(), 0u);
  EXPECT_GT(load.completed(), 100u);
}

}  // namespace
}  // namespace xblk::scenarios
