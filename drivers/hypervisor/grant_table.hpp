// The hypervisor's side of one domain's grant table.
//
// Two tables exist for each domain: the shared entries, which the guest writes and which are believed only at the
// moment of acquire(), and the private active entries below, which alone say what is in use. While an entry is active,
// its frame and its mapper are those of the first acquire(), whatever the guest writes meanwhile.
#pragma once

#include <cstdint>
#include <memory>

#include "drivers/base/check.hpp"
#include "drivers/base/units.hpp"
#include "drivers/hypervisor/grant_entry.hpp"
#include "drivers/hypervisor/lock_policy.hpp"
#include "drivers/platform/grants.hpp"

namespace xblk::hypervisor {

struct Acquired {
  platform::GrantStatus status = platform::GrantStatus::general_error;
  FrameNumber frame{};  // valid when okay
};

template <class Env>
class GrantTable {
 public:
  // `shared` are `frames` pages of entries that the guest can write; `memory_pages` bounds the frames it may name.
  GrantTable(Env& env, GrantLocks locks, std::byte* shared, std::uint32_t frames, std::uint32_t memory_pages)
      : locks_(locks),
        entries_(reinterpret_cast<GrantEntry*>(shared)),
        count_(frames * kGrantsPerFrame),
        memory_pages_(memory_pages),
        active_(std::make_unique<Active[]>(count_)),
        table_mutex_(env),
        table_rwlock_(env) {}

  // Pins the page behind `gref` for `mapper`. Balanced by release() with the same gref and access.
  Acquired acquire(GrantRef gref, DomId mapper, platform::Access access, platform::LockWait& wait) {
    if (gref.value() >= count_) return {platform::GrantStatus::bad_gntref, {}};
    return with_entry(gref, wait, [&](Active& active) -> Acquired {
      if (closed_) return {platform::GrantStatus::bad_domain, {}};
      return pin(active, entries_[gref.value()], mapper, access);
    });
  }

  void release(GrantRef gref, platform::Access access, platform::LockWait& wait) {
    XBLK_CHECK(gref.value() < count_, "only an acquired grant is released");
    with_entry(gref, wait, [&](Active& active) { unpin(active, entries_[gref.value()], access); });
  }

  // The domain is gone: nothing new can be acquired; what is pinned stays pinned until released.
  void close(platform::LockWait& wait) {
    if (locks_ == GrantLocks::coarse) {
      const Exclusive guard(table_mutex_, wait);
      closed_ = true;
    } else {
      const Exclusive guard(table_rwlock_, wait);
      closed_ = true;
    }
  }

  // Number of entries with at least one pin; for status and leak checks, not for decisions.
  [[nodiscard]] std::uint32_t active_entries() {
    platform::LockWait wait;
    std::uint32_t n = 0;
    for (std::uint32_t i = 0; i < count_; ++i) {
      with_entry(GrantRef(i), wait, [&](Active& active) { n += active.readers + active.writers > 0 ? 1 : 0; });
    }
    return n;
  }

 private:
  struct Active {
    typename Env::SpinLock lock;  // split only
    DomId mapper{};
    FrameNumber frame{};
    std::uint32_t readers = 0;  // pins with read_only access
    std::uint32_t writers = 0;  // pins with read_write access
  };

  template <class Body>
  auto with_entry(GrantRef gref, platform::LockWait& wait, Body body) {
    Active& active = active_[gref.value()];
    if (locks_ == GrantLocks::coarse) {
      const Exclusive guard(table_mutex_, wait);
      return body(active);
    }
    const Shared table(table_rwlock_, wait);
    const Exclusive entry(active.lock, wait);
    return body(active);
  }

  // As map_grant_ref() of Xen: an active entry is looked at again only when the new pin asks for more than is held.
  Acquired pin(Active& active, GrantEntry& entry, DomId mapper, platform::Access access) {
    const bool writing = access == platform::Access::read_write;
    const bool idle = active.readers + active.writers == 0;
    if (!idle && active.mapper != mapper) return {platform::GrantStatus::general_error, {}};
    if (idle || (writing && active.writers == 0)) {
      const platform::GrantStatus status = set_status(entry, mapper, access);
      if (status != platform::GrantStatus::okay) return {status, {}};
    }
    if (idle) {
      active.frame = entry_frame(entry);
      active.mapper = mapper;
      if (active.frame.value() >= memory_pages_) {
        clear_status(entry, kGtfReading | kGtfWriting);
        return {platform::GrantStatus::bad_page, {}};
      }
    }
    ++(writing ? active.writers : active.readers);
    return {platform::GrantStatus::okay, active.frame};
  }

  void unpin(Active& active, GrantEntry& entry, platform::Access access) {
    const bool writing = access == platform::Access::read_write;
    std::uint32_t& pins = writing ? active.writers : active.readers;
    XBLK_CHECK(pins > 0, "a grant is released as often as it was acquired, with the same access");
    --pins;
    const bool last = active.readers + active.writers == 0;
    const std::uint32_t flags = (writing && pins == 0 ? kGtfWriting : 0) | (last ? kGtfReading : 0);
    if (flags != 0) clear_status(entry, flags);
  }

  const GrantLocks locks_;
  GrantEntry* const entries_;
  const std::uint32_t count_;
  const std::uint32_t memory_pages_;
  bool closed_ = false;  // guarded by table_mutex_ or table_rwlock_
  std::unique_ptr<Active[]> active_;
  typename Env::Mutex table_mutex_;    // coarse
  typename Env::RwLock table_rwlock_;  // split
};

}  // namespace xblk::hypervisor
