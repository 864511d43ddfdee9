// The device against a real server, without fio, so that it runs under the sanitizers too.
#include "ci/perf/vhost_user_blk/device.hpp"

#include <algorithm>
#include <tuple>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ci/perf/vhost_user_blk/server_testing.hpp"
#include "drivers/base/prng.hpp"

namespace xblk::vhost_user {
namespace {

using blkfront::Completion;
using blkfront::Io;
using blkfront::IoOp;
using testing::HasSubstr;

constexpr std::uint64_t kDiskBytes = 8u << 20;
constexpr Nanos kPatience = seconds(20);
constexpr Sectors kBlock{8};  // 4 KiB

class DeviceTest : public testing::Test {
 protected:
  void connect(DeviceSettings settings = {}) {
    settings.socket = server_.socket();
    settings.buffers = Bytes(2u << 20);
    auto device = Device::connect(settings);
    ASSERT_TRUE(device) << device.error().message;
    device_ = std::move(*device);
    auto channel = device_->open_channel(0);
    ASSERT_TRUE(channel) << channel.error().message;
    channel_ = std::move(*channel);
  }

  int run(const Io& io) {
    const auto submitted = channel_->submit(io);
    if (!submitted) return submitted.error().code;
    channel_->commit();
    std::array<Completion, 1> done{};
    if (channel_->reap(1, done, kPatience) != 1) return ETIMEDOUT;
    EXPECT_EQ(done[0].cookie, io.cookie);
    return done[0].error;
  }

  fio_engine::TemporaryFolder folder_;
  StorageDaemon server_{raw_disk(folder_, kDiskBytes), 2};
  std::unique_ptr<Device> device_;
  std::unique_ptr<blkfront::Channel> channel_;
};

TEST_F(DeviceTest, KnowsItsGeometry) {
  connect();
  EXPECT_EQ(to_bytes(device_->info().capacity).value(), kDiskBytes);
  EXPECT_EQ(device_->info().sector_size, 512u);
  EXPECT_FALSE(device_->info().readonly);
  EXPECT_TRUE(device_->info().negotiated.flush);
  EXPECT_TRUE(device_->info().negotiated.discard);
  EXPECT_TRUE(device_->event_index()) << "qemu-storage-daemon offers it";
}

// The server's own file shows what was really written.
TEST_F(DeviceTest, WritesFlushesDiscardsAndReadsBack) {
  connect();
  const auto buffer = device_->allocate_buffers(Bytes(kPageSize)).value();
  std::ranges::fill(buffer, std::byte{0x5a});
  int cookie = 0;
  const Sectors sector(64);
  EXPECT_EQ(run({IoOp::write, sector, kBlock, buffer.data(), &cookie}), 0);
  EXPECT_EQ(run({IoOp::flush, Sectors(0), Sectors(0), nullptr, &cookie}), 0);
  std::ifstream disk(folder_.file("disk.raw"), std::ios::binary);
  disk.seekg(static_cast<std::streamoff>(to_bytes(sector).value()));
  EXPECT_EQ(disk.get(), 0x5a);

  std::ranges::fill(buffer, std::byte{0});
  EXPECT_EQ(run({IoOp::read, sector, kBlock, buffer.data(), &cookie}), 0);
  EXPECT_TRUE(std::ranges::all_of(buffer, [](std::byte b) { return b == std::byte{0x5a}; }));
  EXPECT_EQ(run({IoOp::discard, sector, kBlock, nullptr, &cookie}), 0);
  EXPECT_EQ(run({IoOp::read, sector, kBlock, buffer.data(), &cookie}), 0);
  EXPECT_TRUE(std::ranges::all_of(buffer, [](std::byte b) { return b == std::byte{0}; }));
}

TEST_F(DeviceTest, AnIoBeyondTheEndFails) {
  connect();
  const auto buffer = device_->allocate_buffers(Bytes(kPageSize)).value();
  EXPECT_EQ(run({IoOp::read, device_->info().capacity, kBlock, buffer.data(), nullptr}), EIO);
}

TEST_F(DeviceTest, AFullQueueSaysSoAndGoesOnAfterAReap) {
  connect();
  const auto buffer = device_->allocate_buffers(Bytes(kPageSize)).value();
  const Io io{IoOp::read, Sectors(0), kBlock, buffer.data(), nullptr};
  for (std::size_t i = 0; i < kRequestsPerQueue; ++i) ASSERT_TRUE(channel_->submit(io));
  const auto refused = channel_->submit(io);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, EAGAIN);
  channel_->commit();
  std::array<Completion, kRequestsPerQueue> done{};
  EXPECT_EQ(channel_->reap(kRequestsPerQueue, done, kPatience), kRequestsPerQueue);
  EXPECT_EQ(run(io), 0);
}

TEST_F(DeviceTest, EachQueueHasOneChannelAtATime) {
  connect({.queues = 2});
  const auto second = device_->open_channel(1);
  EXPECT_TRUE(second);
  const auto third = device_->open_channel(2);
  ASSERT_FALSE(third);
  EXPECT_EQ(third.error().code, EBUSY);
  EXPECT_THAT(third.error().message, HasSubstr("more jobs than the 2 queues"));
  channel_.reset();
  EXPECT_TRUE(device_->open_channel(0));
}

TEST_F(DeviceTest, RefusesMoreQueuesThanTheServerHas) {
  const auto refused = Device::connect({.socket = server_.socket(), .queues = 3});
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, HasSubstr("the server has 2 queues, not 3"));
}

TEST_F(DeviceTest, RefusesMoreMemoryThanWasAnnounced) {
  connect();
  const auto refused = device_->allocate_buffers(Bytes(4u << 20));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ENOMEM);
}

TEST_F(DeviceTest, IsThereAgainAfterADisconnect) {
  for (int round = 0; round < 3; ++round) {
    connect();
    const auto buffer = device_->allocate_buffers(Bytes(kPageSize)).value();
    EXPECT_EQ(run({IoOp::read, Sectors(0), kBlock, buffer.data(), nullptr}), 0);
    channel_.reset();
    const auto closed = device_->disconnect();
    EXPECT_TRUE(closed) << closed.error().message;
    device_.reset();
  }
}

class Waiting : public DeviceTest, public testing::WithParamInterface<std::tuple<bool, bool>> {
 protected:
  void connect_as_asked() { connect({.poll = std::get<0>(GetParam()), .event_index = std::get<1>(GetParam())}); }
};
INSTANTIATE_TEST_SUITE_P(Modes, Waiting, testing::Combine(testing::Bool(), testing::Bool()), [](const auto& test) {
  return std::string(std::get<0>(test.param) ? "polling" : "sleeping") +
         (std::get<1>(test.param) ? "_event_index" : "_flags");
});

// Batches of random sizes, each block with its own content; nothing is lost, doubled or given to another.
TEST_P(Waiting, EveryBlockComesBackAsItWasWritten) {
  connect_as_asked();
  constexpr unsigned kBlocks = 64;
  const std::uint64_t seed = 7;
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  Prng prng(seed);
  const auto memory = device_->allocate_buffers(Bytes(kBlocks * kPageSize)).value();
  std::array<unsigned, kBlocks> numbers{};
  for (unsigned i = 0; i < kBlocks; ++i) {
    numbers[i] = i;
    std::ranges::fill(memory.subspan(i * kPageSize, kPageSize), static_cast<std::byte>(i + 1));
  }
  for (const IoOp op : {IoOp::write, IoOp::read}) {
    if (op == IoOp::read) std::ranges::fill(memory, std::byte{0});
    std::array<unsigned, kBlocks> seen{};
    std::array<Completion, kBlocks> done{};
    for (unsigned sent = 0, completed = 0; completed < kBlocks;) {
      for (std::uint64_t batch = 1 + prng.below(16); batch > 0 && sent < kBlocks; --batch, ++sent) {
        ASSERT_TRUE(
            channel_->submit({op, Sectors(sent * kBlock.value()), kBlock, &memory[sent * kPageSize], &numbers[sent]}));
      }
      channel_->commit();
      const unsigned arrived = channel_->reap(1, done, kPatience);
      ASSERT_GT(arrived, 0u);
      for (unsigned i = 0; i < arrived; ++i) {
        ASSERT_EQ(done[i].error, 0);
        ++seen[*static_cast<unsigned*>(done[i].cookie)];
      }
      completed += arrived;
    }
    EXPECT_THAT(seen, testing::Each(1u));
  }
  for (unsigned i = 0; i < kBlocks; ++i) {
    EXPECT_TRUE(std::ranges::all_of(memory.subspan(i * kPageSize, kPageSize),
                                    [i](std::byte b) { return b == static_cast<std::byte>(i + 1); }))
        << "block " << i;
  }
}

TEST_P(Waiting, ADeadServerFailsWhatIsInFlight) {
  connect_as_asked();
  const auto buffer = device_->allocate_buffers(Bytes(kPageSize)).value();
  const Io io{IoOp::read, Sectors(0), kBlock, buffer.data(), nullptr};
  EXPECT_EQ(run(io), 0);
  server_.end(SIGKILL);
  EXPECT_EQ(run(io), ENODEV);
  const auto refused = channel_->submit(io);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ENODEV);
  channel_.reset();
  EXPECT_FALSE(device_->disconnect());
}

}  // namespace
}  // namespace xblk::vhost_user
