#include "ci/perf/vhost_user_blk/split_queue.hpp"

#include <atomic>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "ci/perf/vhost_user_blk/device_side_testing.hpp"
#include "drivers/base/prng.hpp"

namespace xblk::vhost_user {
namespace {

// A queue and the device at its other end.
struct Rig {
  explicit Rig(bool event_index, std::uint16_t size = 8)
      : memory(QueueLayout{size}.bytes()),
        queue(memory.base(), QueueLayout{size}, event_index),
        device(queue, event_index) {}

  PageMemory memory;
  SplitQueue queue;
  DeviceSide device;
};

// 2.7: 16 bytes a descriptor, 6 + 2 a chain for the available ring, 6 + 8 for the used ring, aligned to 16, 2 and 4.
TEST(QueueLayout, HasRoomForEachPartAndPagesOfItsOwnForEach) {
  for (std::uint16_t size = 1; size <= 0x4000; size = static_cast<std::uint16_t>(size * 2)) {
    const QueueLayout layout{size};
    EXPECT_GE(layout.available(), 16u * size);
    EXPECT_GE(layout.used() - layout.available(), 6u + 2u * size);
    EXPECT_GE(layout.bytes() - layout.used(), 6u + 8u * size);
    EXPECT_EQ(layout.available() % kPageSize, 0u);
    EXPECT_EQ(layout.used() % kPageSize, 0u);
    EXPECT_EQ(layout.bytes() % kPageSize, 0u);
  }
  EXPECT_EQ(QueueLayout{256}.available(), 4096u);
  EXPECT_EQ(QueueLayout{256}.used(), 8192u);
  EXPECT_EQ(QueueLayout{256}.bytes(), 12288u);
  EXPECT_EQ(QueueLayout{512}.bytes(), 8192u + 4096u + 8192u);  // 6 + 8 * 512 does not fit one page
}

class SplitQueueTest : public testing::TestWithParam<bool> {};  // whether event indexes are negotiated
INSTANTIATE_TEST_SUITE_P(EventIndex, SplitQueueTest, testing::Bool());

TEST_P(SplitQueueTest, ShowsChainsOnlyWhenPublished) {
  Rig rig(GetParam());
  rig.queue.push(3);
  rig.queue.push(0);
  EXPECT_EQ(rig.device.take(), -1);
  static_cast<void>(rig.queue.publish());
  EXPECT_EQ(rig.device.take(), 3);
  EXPECT_EQ(rig.device.take(), 0);
  EXPECT_EQ(rig.device.take(), -1);
}

TEST_P(SplitQueueTest, ABatchIsOneKickAndNothingIsNone) {
  Rig rig(GetParam());
  EXPECT_FALSE(rig.queue.publish());
  ASSERT_FALSE(rig.device.want_kick());
  for (const std::uint16_t head : {0, 1, 2, 3}) rig.queue.push(head);
  EXPECT_TRUE(rig.queue.publish());
  EXPECT_FALSE(rig.queue.publish());
}

TEST_P(SplitQueueTest, ADeviceThatPollsGetsNoKick) {
  Rig rig(GetParam());
  ASSERT_FALSE(rig.device.want_kick());
  rig.queue.push(0);
  EXPECT_TRUE(rig.queue.publish());
  rig.device.want_no_kick();
  for (const std::uint16_t head : {1, 2, 3}) {
    rig.queue.push(head);
    EXPECT_FALSE(rig.queue.publish());
  }
}

TEST_P(SplitQueueTest, GivesBackInTheDevicesOrder) {
  Rig rig(GetParam());
  for (const std::uint16_t head : {0, 1, 2}) rig.queue.push(head);
  static_cast<void>(rig.queue.publish());
  EXPECT_EQ(rig.queue.pop(), std::nullopt);
  rig.device.give_back(2);
  rig.device.give_back(0);
  EXPECT_TRUE(rig.queue.has_used());
  EXPECT_EQ(rig.queue.pop(), 2u);
  EXPECT_EQ(rig.queue.pop(), 0u);
  EXPECT_FALSE(rig.queue.has_used());
  EXPECT_EQ(rig.queue.pop(), std::nullopt);
}

TEST_P(SplitQueueTest, AnEventComesOnceItIsAskedForAndNotBefore) {
  Rig rig(GetParam());
  EXPECT_FALSE(rig.device.give_back(0)) << "a new queue wants no events";
  ASSERT_TRUE(rig.queue.pop());
  EXPECT_FALSE(rig.queue.arm());
  EXPECT_TRUE(rig.device.give_back(0));
  EXPECT_TRUE(rig.queue.arm()) << "there is one already";
  rig.queue.suppress();
  EXPECT_FALSE(rig.device.give_back(0));
}

// The indexes are 16 bits wide and never reset; at the wrap nothing may be lost, kicked twice or signalled.
TEST_P(SplitQueueTest, WrapsItsIndexes) {
  Rig rig(GetParam());
  const std::uint64_t seed = 20;
  Prng prng(seed);
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  for (unsigned done = 0; done < 200'000;) {
    const unsigned batch = 1 + static_cast<unsigned>(prng.below(rig.queue.size()));
    ASSERT_FALSE(rig.device.want_kick());
    for (unsigned i = 0; i < batch; ++i) rig.queue.push(static_cast<std::uint16_t>(i));
    ASSERT_TRUE(rig.queue.publish());
    for (unsigned i = 0; i < batch; ++i) {
      ASSERT_EQ(rig.device.take(), static_cast<int>(i));
      ASSERT_FALSE(rig.device.give_back(i)) << "after " << done + i;
      ASSERT_EQ(rig.queue.pop(), i);
      rig.queue.keep_suppressed();
    }
    ASSERT_EQ(rig.device.take(), -1);
    done += batch;
  }
}

// Two threads that sleep (here: yield) whenever they were told that there is nothing: a lost kick or event hangs them.
TEST_P(SplitQueueTest, LosesNoWakeUpBetweenTwoThreads) {
  constexpr unsigned kChains = 20'000;
  Rig rig(GetParam(), 4);
  std::atomic<bool> kicked{false};
  std::atomic<bool> called{false};
  std::thread device([&] {
    for (unsigned done = 0; done < kChains;) {
      const int head = rig.device.take();
      if (head >= 0) {
        ++done;
        if (rig.device.give_back(static_cast<std::uint32_t>(head))) called = true;
      } else if (!rig.device.want_kick()) {
        while (!kicked.exchange(false)) std::this_thread::yield();
      }
    }
  });
  unsigned completed = 0;
  for (unsigned sent = 0; completed < kChains;) {
    bool pushed = false;
    for (; sent < kChains && sent - completed < rig.queue.size(); ++sent, pushed = true) {
      rig.queue.push(static_cast<std::uint16_t>(sent % rig.queue.size()));
    }
    if (pushed && rig.queue.publish()) kicked = true;
    while (const auto head = rig.queue.pop()) {
      ASSERT_LT(*head, rig.queue.size());
      ++completed;
    }
    const bool must_wait = sent - completed == rig.queue.size() || (sent == kChains && completed < sent);
    if (must_wait && !rig.queue.arm()) {
      while (!called.exchange(false)) std::this_thread::yield();
    }
    rig.queue.suppress();
  }
  device.join();
  EXPECT_EQ(completed, kChains);
}

}  // namespace
}  // namespace xblk::vhost_user
