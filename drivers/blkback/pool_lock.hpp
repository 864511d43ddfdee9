// The lock of a pool. Taken only where rings share the pool: a pool of one ring is used by that ring's worker alone,
// and by the control thread after the worker has let go of the ring.
#pragma once

#include "drivers/platform/concepts.hpp"

namespace xblk::blkback {

template <platform::Env Env>
class PoolLock {
 public:
  PoolLock(Env& env, bool shared) : mutex_(env), shared_(shared) {}

  class [[nodiscard]] Guard {
   public:
    Guard(PoolLock& lock, platform::LockWait& wait) : lock_(lock) {
      if (lock_.shared_) lock_.mutex_.lock(wait);
    }
    ~Guard() {
      if (lock_.shared_) lock_.mutex_.unlock();
    }
    Guard(const Guard&) = delete;
    Guard& operator=(const Guard&) = delete;

   private:
    PoolLock& lock_;
  };

 private:
  typename Env::Mutex mutex_;
  const bool shared_;
};

}  // namespace xblk::blkback
