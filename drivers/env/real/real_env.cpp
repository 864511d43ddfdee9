#include "drivers/env/real/real_env.hpp"

#include <fcntl.h>
#include <sched.h>
#include <sys/sysinfo.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <string>

#include "drivers/base/check.hpp"

namespace xblk::env {
namespace {

constexpr int kSpinsBeforeYield = 100;

std::int64_t monotonic_ns(clockid_t clock) {
  timespec t{};
  ::clock_gettime(clock, &t);
  return t.tv_sec * 1'000'000'000LL + t.tv_nsec;
}

// The fourth field of /proc/loadavg: "runnable/total" scheduling entities at this moment.
int runnable_threads() {
  const int fd = ::open("/proc/loadavg", O_RDONLY | O_CLOEXEC);
  if (fd < 0) return 0;
  char text[128] = {};
  const ssize_t got = ::read(fd, text, sizeof text - 1);
  ::close(fd);
  if (got <= 0) return 0;
  const char* field = text;
  for (int spaces = 0; spaces < 3 && field != nullptr; ++spaces) {
    field = std::strchr(field, ' ');
    if (field != nullptr) ++field;
  }
  return field == nullptr ? 0 : std::atoi(field);
}

template <class TryLock, class Lock>
void lock_timed(platform::LockWait& wait, TryLock try_lock, Lock lock) {
  if (try_lock()) return;
  const std::int64_t start = monotonic_ns(CLOCK_MONOTONIC);
  lock();
  wait.wait_ns += static_cast<std::uint64_t>(monotonic_ns(CLOCK_MONOTONIC) - start);
  ++wait.contended;
}

}  // namespace

Instant RealEnv::now() const {
  return Instant(monotonic_ns(CLOCK_MONOTONIC));
}

bool RealEnv::cpus_oversubscribed() const {
  const std::int64_t current_ns = monotonic_ns(CLOCK_MONOTONIC);
  std::int64_t checked = checked_ns_.load(std::memory_order_relaxed);
  if (current_ns - checked > millis(1).value() &&
      checked_ns_.compare_exchange_strong(checked, current_ns, std::memory_order_relaxed)) {
    oversubscribed_.store(runnable_threads() > ::get_nprocs(), std::memory_order_relaxed);
  }
  return oversubscribed_.load(std::memory_order_relaxed);
}

void RealEnv::relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

void RealEnv::yield() {
  ::sched_yield();
}

void RealEnv::sleep(Nanos duration) {
  const timespec t{duration.value() / 1'000'000'000, duration.value() % 1'000'000'000};
  ::nanosleep(&t, nullptr);
}

Nanos RealEnv::thread_cpu() const {
  return Nanos(monotonic_ns(CLOCK_THREAD_CPUTIME_ID));
}

void RealEnv::Mutex::lock(platform::LockWait& wait) {
  lock_timed(
      wait, [this] { return mutex_.try_lock(); }, [this] { mutex_.lock(); });
}

void RealEnv::RwLock::lock(platform::LockWait& wait) {
  lock_timed(
      wait, [this] { return mutex_.try_lock(); }, [this] { mutex_.lock(); });
}

void RealEnv::RwLock::lock_shared(platform::LockWait& wait) {
  lock_timed(
      wait, [this] { return mutex_.try_lock_shared(); }, [this] { mutex_.lock_shared(); });
}

void RealEnv::SpinLock::lock(platform::LockWait& wait) {
  lock_timed(
      wait, [this] { return try_lock(); },
      [this] {
        for (int spins = 0; !try_lock(); ++spins) {
          if (spins >= kSpinsBeforeYield) ::sched_yield();
        }
      });
}

void RealEnv::Signal::raise() {
  {
    const std::lock_guard guard(mutex_);
    raised_ = true;
  }
  condition_.notify_one();
}

bool RealEnv::Signal::wait_until(Instant deadline) {
  std::unique_lock guard(mutex_);
  const auto raised = [this] { return raised_; };
  if (deadline == Instant::never()) {
    condition_.wait(guard, raised);
  } else {
    const std::chrono::steady_clock::time_point until{std::chrono::nanoseconds(deadline.ns())};
    if (!condition_.wait_until(guard, until, raised)) return false;
  }
  raised_ = false;
  return true;
}

}  // namespace xblk::env
