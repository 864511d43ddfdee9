// Requests as the device finds them in memory, and a device that lies.
#include "ci/perf/vhost_user_blk/queue.hpp"

#include <array>
#include <cstring>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ci/perf/vhost_user_blk/device_side_testing.hpp"

namespace xblk::vhost_user {
namespace {

using blkfront::Completion;
using blkfront::Io;
using blkfront::IoOp;

class QueueTest : public testing::Test {
 protected:
  static env::RealDoorbell doorbell() { return env::RealDoorbell::create().value(); }

  // Submits, shows it to the device, and returns the head that the device finds.
  std::uint16_t send(const Io& io) {
    EXPECT_TRUE(queue_.submit(io));
    queue_.commit();
    return static_cast<std::uint16_t>(device_.take());
  }
  std::vector<Completion> reap() {
    std::array<Completion, kRequestsPerQueue> done{};
    const unsigned n = queue_.reap(0, done, Nanos(0));
    return {done.begin(), done.begin() + n};
  }
  [[nodiscard]] const vring_desc& descriptor(std::size_t number) const { return queue_.ring().descriptors()[number]; }
  template <class T>
  static T at(std::uint64_t address) {
    T value;
    std::memcpy(&value, reinterpret_cast<const void*>(address), sizeof value);
    return value;
  }
  // As the device does when it has finished with the chain.
  void complete(std::uint16_t head, std::uint8_t status) {
    const vring_desc* last = &descriptor(head);
    while ((last->flags & VRING_DESC_F_NEXT) != 0) last = &descriptor(last->next);
    std::memcpy(reinterpret_cast<void*>(last->addr), &status, sizeof status);
    device_.give_back(head);
  }

  PageMemory memory_{queue_memory_bytes()};
  std::array<std::byte, 4096> buffer_{};
  int cookie_ = 0;
  Queue queue_{memory_.base(), doorbell(), doorbell(), {.event_index = true, .poll = true, .control_socket = -1}};
  DeviceSide device_{queue_.ring(), true};
};

TEST_F(QueueTest, AReadIsHeaderDataAndStatus) {
  const auto head = send({IoOp::read, Sectors(72), Sectors(8), buffer_.data(), &cookie_});
  const auto header = at<virtio_blk_outhdr>(descriptor(head).addr);
  EXPECT_EQ(header.type, static_cast<unsigned>(VIRTIO_BLK_T_IN));
  EXPECT_EQ(header.sector, 72u);
  EXPECT_EQ(descriptor(head).len, 16u);
  EXPECT_EQ(descriptor(head).flags, VRING_DESC_F_NEXT);
  const vring_desc& data = descriptor(descriptor(head).next);
  EXPECT_EQ(data.addr, reinterpret_cast<std::uintptr_t>(buffer_.data()));
  EXPECT_EQ(data.len, 4096u);
  EXPECT_EQ(data.flags, VRING_DESC_F_NEXT | VRING_DESC_F_WRITE);
  const vring_desc& status = descriptor(data.next);
  EXPECT_EQ(status.len, 1u);
  EXPECT_EQ(status.flags, VRING_DESC_F_WRITE);
  complete(head, VIRTIO_BLK_S_OK);
  const auto done = reap();
  ASSERT_EQ(done.size(), 1u);
  EXPECT_EQ(done[0].cookie, &cookie_);
  EXPECT_EQ(done[0].error, 0);
}

TEST_F(QueueTest, TheDeviceOnlyReadsWhatIsWritten) {
  const auto head = send({IoOp::write, Sectors(0), Sectors(8), buffer_.data(), &cookie_});
  EXPECT_EQ(at<virtio_blk_outhdr>(descriptor(head).addr).type, static_cast<unsigned>(VIRTIO_BLK_T_OUT));
  EXPECT_EQ(descriptor(descriptor(head).next).flags, VRING_DESC_F_NEXT);
}

TEST_F(QueueTest, AFlushHasNoData) {
  const auto head = send({IoOp::flush, Sectors(0), Sectors(0), nullptr, &cookie_});
  EXPECT_EQ(at<virtio_blk_outhdr>(descriptor(head).addr).type, static_cast<unsigned>(VIRTIO_BLK_T_FLUSH));
  EXPECT_EQ(descriptor(descriptor(head).next).flags, VRING_DESC_F_WRITE) << "the status follows at once";
}

TEST_F(QueueTest, ADiscardNamesItsRange) {
  const auto head = send({IoOp::discard, Sectors(16), Sectors(24), nullptr, &cookie_});
  EXPECT_EQ(at<virtio_blk_outhdr>(descriptor(head).addr).sector, 0u);
  const vring_desc& data = descriptor(descriptor(head).next);
  EXPECT_EQ(data.flags, VRING_DESC_F_NEXT);
  const auto range = at<virtio_blk_discard_write_zeroes>(data.addr);
  EXPECT_EQ(range.sector, 16u);
  EXPECT_EQ(range.num_sectors, 24u);
  EXPECT_EQ(range.flags, 0u);
}

TEST_F(QueueTest, RefusesWhatVirtioHasNot) {
  EXPECT_EQ(queue_.submit({IoOp::barrier, Sectors(0), Sectors(0), nullptr, nullptr}).error().code, EOPNOTSUPP);
  Io secure{IoOp::discard, Sectors(0), Sectors(8), nullptr, nullptr};
  secure.secure = true;
  EXPECT_EQ(queue_.submit(secure).error().code, EOPNOTSUPP);
}

TEST_F(QueueTest, ReportsTheDevicesStatus) {
  const Io io{IoOp::read, Sectors(0), Sectors(8), buffer_.data(), &cookie_};
  complete(send(io), VIRTIO_BLK_S_IOERR);
  EXPECT_EQ(reap().at(0).error, EIO);
  complete(send(io), VIRTIO_BLK_S_UNSUPP);
  EXPECT_EQ(reap().at(0).error, EOPNOTSUPP);
  complete(send(io), 77);
  EXPECT_EQ(reap().at(0).error, EIO);
}

TEST_F(QueueTest, ReturnsAtOnceWhenNothingIsInFlight) {
  std::array<Completion, 1> done{};
  EXPECT_EQ(queue_.reap(1, done, kForever), 0u);
}

TEST_F(QueueTest, TimesOutWhenNothingCompletes) {
  send({IoOp::read, Sectors(0), Sectors(8), buffer_.data(), &cookie_});
  std::array<Completion, 1> done{};
  EXPECT_EQ(queue_.reap(1, done, millis(1)), 0u);
}

class LyingDevice : public QueueTest, public testing::WithParamInterface<std::uint32_t> {};
INSTANTIATE_TEST_SUITE_P(Heads, LyingDevice,
                         testing::Values(1,                                          // inside a chain
                                         3,                                          // not in flight
                                         kRequestsPerQueue* kDescriptorsPerRequest,  // no chain begins there
                                         0x10000, 0xffffffff));

TEST_P(LyingDevice, FailsWhatIsInFlightAndTakesNothingMore) {
  ASSERT_EQ(send({IoOp::read, Sectors(0), Sectors(8), buffer_.data(), &cookie_}), 0u);
  device_.give_back(GetParam());
  const auto done = reap();
  ASSERT_EQ(done.size(), 1u);
  EXPECT_EQ(done[0].cookie, &cookie_);
  EXPECT_EQ(done[0].error, EPROTO);
  EXPECT_EQ(queue_.submit({IoOp::read, Sectors(0), Sectors(8), buffer_.data(), nullptr}).error().code, EPROTO);
}

}  // namespace
}  // namespace xblk::vhost_user
