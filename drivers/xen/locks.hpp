// Scoped locks that measure nothing: LockWait is for the hypervisor's locks, and those are invisible from user space.
#pragma once

#include "drivers/env/real/real_env.hpp"

namespace xblk::xen {

class Reading {
 public:
  explicit Reading(env::RealEnv::RwLock& lock) : lock_(lock) {
    platform::LockWait unmeasured;
    lock_.lock_shared(unmeasured);
  }
  ~Reading() { lock_.unlock_shared(); }
  Reading(const Reading&) = delete;
  Reading& operator=(const Reading&) = delete;

 private:
  env::RealEnv::RwLock& lock_;
};

template <class Lock>
class Exclusive {
 public:
  explicit Exclusive(Lock& lock) : lock_(lock) {
    platform::LockWait unmeasured;
    lock_.lock(unmeasured);
  }
  ~Exclusive() { lock_.unlock(); }
  Exclusive(const Exclusive&) = delete;
  Exclusive& operator=(const Exclusive&) = delete;

 private:
  Lock& lock_;
};

}  // namespace xblk::xen
