#include "drivers/env/real/real_env.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <thread>

namespace xblk::env {
namespace {

TEST(RealMemory, IsSealedAgainstResizing) {
  auto memory = RealMemory::create("test", 4);
  ASSERT_TRUE(memory) << memory.error().message;
  EXPECT_NE(::ftruncate(memory->fd(), 0), 0);
  EXPECT_NE(::ftruncate(memory->fd(), 1 << 20), 0);
  EXPECT_NE(::fcntl(memory->fd(), F_ADD_SEALS, F_SEAL_WRITE), 0);
}

TEST(RealMemory, PunchedHoleReadsZeroThroughEveryMapping) {
  auto memory = RealMemory::create("test", 2);
  ASSERT_TRUE(memory);
  auto window = memory->map(FrameNumber(1), 1, platform::Access::read_write);
  ASSERT_TRUE(window);
  (*window)[5] = std::byte{7};
  EXPECT_EQ(memory->base()[kPageSize + 5], std::byte{7});
  ASSERT_EQ(::fallocate(memory->fd(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, kPageSize, kPageSize), 0);
  EXPECT_EQ((*window)[5], std::byte{0});
  RealMemory::unmap(*window, 1);
}

TEST(RealMemory, UnsealedMemoryIsNotAdopted) {
  const int fd = ::memfd_create("loose", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  ASSERT_EQ(::ftruncate(fd, kPageSize), 0);
  auto adopted = RealMemory::adopt(fd);
  ASSERT_FALSE(adopted);
  EXPECT_EQ(adopted.error().code, EPROTO);
}

TEST(RealEnvWaitSet, ReportsOnlyWhatIsReadyAndReturnsAtTheDeadline) {
  RealEnv env;
  RealEnv::WaitSet set(env);
  auto a = RealDoorbell::create();
  auto b = RealDoorbell::create();
  ASSERT_TRUE(set.add(a->waitable(), 1));
  ASSERT_TRUE(set.add(b->waitable(), 2));
  std::vector<std::uint64_t> ready;
  set.wait(env.now(), ready);
  EXPECT_TRUE(ready.empty());
  b->ring();
  set.wait(Instant::never(), ready);
  EXPECT_EQ(ready, std::vector<std::uint64_t>{2});
  EXPECT_TRUE(b->consume());
  EXPECT_FALSE(b->consume());
  set.wake();
  ready.clear();
  set.wait(Instant::never(), ready);
  EXPECT_TRUE(ready.empty());
}

// Far deadlines share a timer: one that was set for an earlier sleep must neither end a later one nor be missed.
TEST(RealEnvWaitSet, FarDeadlinesEndNoSleepBeforeItsTime) {
  RealEnv env;
  RealEnv::WaitSet set(env);
  auto bell = RealDoorbell::create();
  ASSERT_TRUE(set.add(bell->waitable(), 1));
  std::vector<std::uint64_t> ready;
  const Instant first = env.now() + millis(5);
  bell->ring();
  set.wait(first, ready);  // the alarm stays set for `first`
  EXPECT_EQ(ready, std::vector<std::uint64_t>{1});
  bell->consume();
  ready.clear();
  const Instant later = first + millis(10);
  set.wait(later, ready);
  EXPECT_TRUE(ready.empty());
  EXPECT_GE(env.now(), later);
  const Instant soon = env.now() + millis(3);
  bell->ring();
  set.wait(soon + seconds(100), ready);  // set too late now
  bell->consume();
  ready.clear();
  set.wait(soon, ready);
  EXPECT_TRUE(ready.empty());
  EXPECT_GE(env.now(), soon);
  EXPECT_LT(env.now(), soon + seconds(50));
}

TEST(RealEnvWaitSet, AWakeBesideAnAlarmIsNotLost) {
  RealEnv env;
  RealEnv::WaitSet set(env);
  auto bell = RealDoorbell::create();
  ASSERT_TRUE(set.add(bell->waitable(), 1));
  std::vector<std::uint64_t> ready;
  bell->ring();
  set.wait(env.now() + millis(2), ready);
  bell->consume();
  env.sleep(millis(3));  // the alarm has gone off
  ready.clear();
  set.wake();
  set.wait(Instant::never(), ready);
  EXPECT_TRUE(ready.empty());
}

TEST(RealEnvMutex, CountsOnlyContendedAcquisitions) {
  RealEnv env;
  RealEnv::Mutex mutex(env);
  platform::LockWait free_wait;
  mutex.lock(free_wait);
  EXPECT_EQ(free_wait.contended, 0u);
  platform::LockWait waiter;
  std::atomic<bool> trying{false};
  std::thread other([&] {
    trying = true;
    mutex.lock(waiter);
    mutex.unlock();
  });
  while (!trying) std::this_thread::yield();
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  mutex.unlock();
  other.join();
  EXPECT_EQ(waiter.contended, 1u);
  EXPECT_GT(waiter.wait_ns, 0u);
}

TEST(RealEnvSignal, IsRememberedOnceAndTimesOut) {
  RealEnv env;
  RealEnv::Signal signal(env);
  signal.raise();
  signal.raise();
  EXPECT_TRUE(signal.wait_until(Instant::never()));
  EXPECT_FALSE(signal.wait_until(env.now() + millis(1)));
}

}  // namespace
}  // namespace xblk::env
