#include "drivers/fio/job.hpp"

#include <cstring>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "drivers/base/prng.hpp"
#include "drivers/fio/memory_opener_testing.hpp"

namespace xblk::fio_engine {
namespace {

using blkfront::Io;
using blkfront::IoOp;
using testing::HasSubstr;

constexpr std::uint64_t kSeed = 20261130;
constexpr Sectors kBlock{8};
constexpr std::size_t kBlockBytes = 8 * kSectorSize;

class JobTest : public testing::Test {
 protected:
  JobTest() {
    MemoryOpener::reset();
    MemoryOpener::options.seed = kSeed;
    RecordProperty("seed", std::to_string(kSeed));
  }

  std::unique_ptr<Job> job(unsigned depth, Nanos stall_limit = kStallLimit) {
    JobOptions options;
    options.device.device = "device/vbd/51712";
    auto joined = Job::join(registry_, options);
    EXPECT_TRUE(joined) << joined.error().message;
    const auto started = (*joined)->start(depth, stall_limit);
    EXPECT_TRUE(started) << started.error().message;
    return std::move(*joined);
  }

  Registry registry_{&MemoryOpener::open};
};

// What fio does, in small: fill `depth` slots, reap, refill; every read must return what was last written there.
class Workload {
 public:
  Workload(Job& job, Sectors first, unsigned blocks, unsigned depth, std::uint64_t seed)
      : job_(job), first_(first), content_(blocks), busy_(blocks), slots_(depth), prng_(seed) {
    std::byte* memory = job_.allocate_buffers(Bytes(depth * kBlockBytes)).value();
    for (unsigned i = 0; i < depth; ++i) {
      slots_[i].buffer = memory + i * kBlockBytes;
      free_.push_back(&slots_[i]);
    }
  }

  void run(unsigned ios) {
    unsigned started = 0;
    unsigned finished = 0;
    while (finished < ios) {
      while (started < ios && !free_.empty() && start_one()) ++started;
      job_.commit();
      const auto count = job_.reap(1, static_cast<unsigned>(slots_.size()));
      ASSERT_TRUE(count) << count.error().message;
      for (unsigned i = 0; i < *count; ++i) finish(job_.completion(i));
      finished += *count;
    }
    EXPECT_EQ(finished, started);
  }

 private:
  struct Slot {
    std::byte* buffer = nullptr;
    unsigned block = 0;
    bool write = false;
  };

  bool start_one() {
    const auto block = static_cast<unsigned>(prng_.below(content_.size()));
    if (busy_[block]) return false;  // fio, too, does not overlap a block with itself
    Slot* slot = free_.back();
    slot->block = block;
    slot->write = prng_.one_in(2);
    const auto fresh = static_cast<std::uint8_t>(prng_.next());
    std::memset(slot->buffer, slot->write ? fresh : ~content_[block], kBlockBytes);
    const Io io{slot->write ? IoOp::write : IoOp::read, first_ + kBlock * block, kBlock, slot->buffer, slot};
    const Status status = job_.submit(io);
    EXPECT_TRUE(status) << status.error().message;
    if (slot->write) content_[block] = fresh;
    busy_[block] = true;
    free_.pop_back();
    return true;
  }

  void finish(const blkfront::Completion& completion) {
    auto* slot = static_cast<Slot*>(completion.cookie);
    EXPECT_EQ(completion.error, 0);
    if (!slot->write) {
      EXPECT_EQ(std::to_integer<std::uint8_t>(slot->buffer[0]), content_[slot->block]);
      EXPECT_EQ(std::memcmp(slot->buffer, slot->buffer + 1, kBlockBytes - 1), 0);
    }
    busy_[slot->block] = false;
    free_.push_back(slot);
  }

  Job& job_;
  const Sectors first_;
  std::vector<std::uint8_t> content_;
  std::vector<bool> busy_;
  std::vector<Slot> slots_;
  std::vector<Slot*> free_;
  Prng prng_;
};

TEST_F(JobTest, JobsShareADeviceSpreadOverItsQueuesAndSeeOnlyTheirOwnCompletions) {
  constexpr unsigned kJobs = 4;
  constexpr unsigned kBlocksEach = 64;
  MemoryOpener::options.queues = 2;
  MemoryOpener::options.capacity = kBlock * (kJobs * kBlocksEach);
  std::vector<std::unique_ptr<Job>> jobs;
  for (unsigned i = 0; i < kJobs; ++i) jobs.push_back(job(16));
  EXPECT_EQ(MemoryOpener::opened, 1);
  EXPECT_EQ(MemoryOpener::last->channels_opened(0), 2U);
  EXPECT_EQ(MemoryOpener::last->channels_opened(1), 2U);

  std::vector<std::thread> threads;
  for (unsigned i = 0; i < kJobs; ++i) {
    threads.emplace_back([&, i] {
      Workload(*jobs[i], kBlock * (i * kBlocksEach), kBlocksEach, 16, kSeed + i).run(2000);
      // As in fio, each job ends in its own thread, while others still run.
      EXPECT_TRUE(jobs[i]->finish());
    });
  }
  for (auto& thread : threads) thread.join();
}

TEST_F(JobTest, ARingSmallerThanTheDepthLosesNothing) {
  MemoryOpener::options.ring_entries = 4;
  MemoryOpener::options.capacity = kBlock * 256;
  const auto deep = job(64);
  Workload(*deep, Sectors(0), 256, 64, kSeed).run(3000);
}

TEST_F(JobTest, AFullRingIsWaitedForSoThatFioNeverRequeues) {
  MemoryOpener::options.ring_entries = 2;
  const auto busy = job(8);
  int cookies[8] = {};
  for (int& cookie : cookies) {
    const Status status = busy->submit({.op = IoOp::flush, .cookie = &cookie});
    ASSERT_TRUE(status) << status.error().message;
  }
  busy->commit();
  unsigned finished = 0;
  while (finished < std::size(cookies)) {
    const unsigned count = busy->reap(1, 8).value();
    for (unsigned i = 0; i < count; ++i) ++*static_cast<int*>(busy->completion(i).cookie);
    finished += count;
  }
  EXPECT_THAT(cookies, testing::Each(1));
}

TEST_F(JobTest, AJobWithNothingOutstandingWaitsForRoomInARingThatOthersFilled) {
  MemoryOpener::options.ring_entries = 2;
  const auto filler = job(2);
  const auto waiter = job(1);
  ASSERT_TRUE(filler->submit({.op = IoOp::flush}));
  ASSERT_TRUE(filler->submit({.op = IoOp::flush}));
  ASSERT_TRUE(waiter->submit({.op = IoOp::flush}));
  waiter->commit();
  EXPECT_EQ(waiter->reap(1, 1).value(), 1U);
  EXPECT_EQ(filler->reap(2, 2).value(), 2U);
}

TEST_F(JobTest, ACommitIsOnePushHoweverManyIos) {
  const auto batching = job(16);
  for (int i = 0; i < 16; ++i) ASSERT_TRUE(batching->submit({.op = IoOp::flush}));
  batching->commit();
  EXPECT_EQ(batching->reap(16, 16).value(), 16U);
  EXPECT_EQ(MemoryOpener::last->counters(0).get(Counter::batches), 1U);
  EXPECT_EQ(MemoryOpener::last->counters(0).get(Counter::ios), 16U);
}

TEST_F(JobTest, AnErrorComesBackWithItsIo) {
  MemoryOpener::options.bad_sectors = {100};
  const auto failing = job(2);
  std::byte* buffer = failing->allocate_buffers(Bytes(2 * kBlockBytes)).value();
  int good = 0;
  int bad = 0;
  ASSERT_TRUE(failing->submit({IoOp::read, Sectors(88), kBlock, buffer, &good}));
  ASSERT_TRUE(failing->submit({IoOp::read, Sectors(96), kBlock, buffer + kBlockBytes, &bad}));
  failing->commit();
  ASSERT_EQ(failing->reap(2, 2).value(), 2U);
  for (unsigned i = 0; i < 2; ++i) {
    EXPECT_EQ(failing->completion(i).error, failing->completion(i).cookie == &bad ? EIO : 0);
  }
}

TEST_F(JobTest, RefusalsOfTheDeviceComeBackAtOnce) {
  MemoryOpener::options.discard = false;
  const auto refused = job(1);
  EXPECT_EQ(refused->submit({.op = IoOp::discard, .count = kBlock}).error().code, EOPNOTSUPP);
  EXPECT_EQ(refused->submit({.op = IoOp::flush, .sector = Sectors(1 << 20)}).error().code, EINVAL);
}

TEST_F(JobTest, ABackendThatHangsEndsEveryWaitWithTheDevicesName) {
  MemoryOpener::options.stalled = true;
  MemoryOpener::options.ring_entries = 1;
  const auto waiting = job(2, millis(1));
  ASSERT_TRUE(waiting->submit({.op = IoOp::flush}));
  waiting->commit();
  const auto count = waiting->reap(1, 1);
  ASSERT_FALSE(count);
  EXPECT_EQ(count.error().code, ETIMEDOUT);
  EXPECT_THAT(count.error().message, HasSubstr("device/vbd/51712"));

  EXPECT_EQ(waiting->submit({.op = IoOp::flush}).error().code, ETIMEDOUT);
  const auto newcomer = job(1, millis(1));
  EXPECT_EQ(newcomer->submit({.op = IoOp::flush}).error().code, ETIMEDOUT);
}

TEST_F(JobTest, PollingNeverWaits) {
  MemoryOpener::options.stalled = true;
  const auto polling = job(1);
  ASSERT_TRUE(polling->submit({.op = IoOp::flush}));
  polling->commit();
  EXPECT_EQ(polling->reap(0, 1).value(), 0U);
}

TEST_F(JobTest, FinishGivesBackBuffersBeforeTheDeviceGoes) {
  const auto stays = job(1);
  const auto leaves = job(1);
  ASSERT_TRUE(leaves->allocate_buffers(Bytes(kPageSize)));
  EXPECT_EQ(MemoryOpener::last->buffers_allocated(), 1U);
  ASSERT_TRUE(leaves->finish());
  EXPECT_EQ(MemoryOpener::last->buffers_allocated(), 0U);
}

}  // namespace
}  // namespace xblk::fio_engine
