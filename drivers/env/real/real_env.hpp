// env/real: threads, the machine's clock, locks that time their waiters, and one epoll wait for everything.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <shared_mutex>
#include <vector>

#include "drivers/base/result.hpp"
#include "drivers/base/unique_fd.hpp"
#include "drivers/base/units.hpp"
#include "drivers/env/real/memory.hpp"
#include "drivers/platform/concepts.hpp"

namespace xblk::env {

class RealEnv {
 public:
  using Waitable = int;  // a file descriptor that polls readable
  using Memory = RealMemory;
  using Doorbell = RealDoorbell;

  class Mutex;
  class RwLock;
  class SpinLock;
  class Signal;
  class WaitSet;

  [[nodiscard]] Instant now() const;
  // More runnable threads in the system than CPUs, as the kernel counts them; looked up at most once a millisecond.
  [[nodiscard]] bool cpus_oversubscribed() const;
  void relax();
  void yield();
  void sleep(Nanos duration);
  [[nodiscard]] Nanos thread_cpu() const;

 private:
  mutable std::atomic<std::int64_t> checked_ns_{0};
  mutable std::atomic<bool> oversubscribed_{false};
};

// std::mutex that measures only contended acquisitions: the uncontended path reads no clock.
class RealEnv::Mutex {
 public:
  explicit Mutex(RealEnv&) {}
  void lock(platform::LockWait& wait);
  bool try_lock() { return mutex_.try_lock(); }
  void unlock() { mutex_.unlock(); }

 private:
  std::mutex mutex_;
};

class RealEnv::RwLock {
 public:
  explicit RwLock(RealEnv&) {}
  void lock(platform::LockWait& wait);
  void unlock() { mutex_.unlock(); }
  void lock_shared(platform::LockWait& wait);
  void unlock_shared() { mutex_.unlock_shared(); }

 private:
  std::shared_mutex mutex_;
};

// Four bytes, for locks that exist by the thousand (one per active grant entry). Yields after a short spin, since the
// holder may have been preempted.
class RealEnv::SpinLock {
 public:
  SpinLock() = default;
  void lock(platform::LockWait& wait);
  bool try_lock() { return !held_.exchange(true, std::memory_order_acquire); }
  void unlock() { held_.store(false, std::memory_order_release); }

 private:
  std::atomic<bool> held_{false};
};

class RealEnv::Signal {
 public:
  explicit Signal(RealEnv&) {}
  void raise();
  bool wait_until(Instant deadline);

 private:
  std::mutex mutex_;
  std::condition_variable condition_;
  bool raised_ = false;
};

// An epoll set. Arming a timer for each sleep costs more than the rest of it on a virtual machine, so far deadlines
// share one timer that is set again only when it is too late or has fired.
class RealEnv::WaitSet {
 public:
  explicit WaitSet(RealEnv& env);
  WaitSet(const WaitSet&) = delete;
  WaitSet& operator=(const WaitSet&) = delete;

  Status add(Waitable source, std::uint64_t token);
  void remove(Waitable source);
  void wait(Instant deadline, std::vector<std::uint64_t>& ready);
  void wake();

 private:
  // Sleeps until something is ready, or for `left` at most (null: without end). True: a source, or wake().
  bool poll(const Nanos* left, std::vector<std::uint64_t>& ready);
  // The alarm goes off at `deadline`, or earlier.
  void set_alarm(Instant deadline);

  RealEnv& env_;
  UniqueFd epoll_;
  UniqueFd timer_;
  RealDoorbell wake_;
  Instant alarm_ = Instant::never();
};

static_assert(platform::Env<RealEnv>);

}  // namespace xblk::env
