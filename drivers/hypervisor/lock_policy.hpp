// The two lockings of the grant table that seed 002 compares, as scopes.
#pragma once

#include <cstdint>

#include "drivers/platform/grants.hpp"

namespace xblk::hypervisor {

// coarse: Xen up to 4.5. One lock per domain covers its grant table, another its maptrack; as a mapping domain, dom0's
//   maptrack lock is shared by all guests and all devices.
// split: Xen 4.6 and later. A reader-writer lock on the table whose write side only changes its extent, a lock per
//   active entry (b4650e9a96), and maptrack free lists per worker (5a9899ddc4, dff515dfea) with stealing (e76ff6c156).
enum class GrantLocks : std::uint8_t { coarse, split };

template <class Lock>
class [[nodiscard]] Exclusive {
 public:
  Exclusive(Lock& lock, platform::LockWait& wait) : lock_(lock) { lock_.lock(wait); }
  ~Exclusive() { lock_.unlock(); }
  Exclusive(const Exclusive&) = delete;
  Exclusive& operator=(const Exclusive&) = delete;

 private:
  Lock& lock_;
};

template <class Lock>
class [[nodiscard]] Shared {
 public:
  Shared(Lock& lock, platform::LockWait& wait) : lock_(lock) { lock_.lock_shared(wait); }
  ~Shared() { lock_.unlock_shared(); }
  Shared(const Shared&) = delete;
  Shared& operator=(const Shared&) = delete;

 private:
  Lock& lock_;
};

}  // namespace xblk::hypervisor
