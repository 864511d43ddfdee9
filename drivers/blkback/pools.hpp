// The two pools of seed 000: persistently mapped grants, and free pages for grant copies. Each is either one per device
// (every ring takes the same lock: `Pools::per_device`, as Linux before 4.5) or one per ring (no lock is ever waited
// for).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "drivers/base/check.hpp"
#include "drivers/base/counters.hpp"
#include "drivers/base/units.hpp"
#include "drivers/blkback/page_options.hpp"
#include "drivers/platform/concepts.hpp"

namespace xblk::blkback {

struct PersistentGrant {
  MapHandle handle{};
  std::byte* address = nullptr;
};

// Grants that stay mapped until disconnect, found by their reference. An array indexed by gref: references are small
// dense integers (a v1 table has at most 32,768 by default), and only a gref that the hypervisor has just mapped is
// ever inserted, so a hostile frontend cannot make the array larger than its own grant table.
template <platform::Env Env>
class PersistentPool {
 public:
  // `capacity`: max_persistent_grants. Seed 003: below it a new gref is kept, at it the gref is mapped for one request
  // only; a sane value is ring slots x (segments + indirect pages) per ring that shares the pool.
  PersistentPool(Env& env, std::uint32_t capacity) : mutex_(env), capacity_(capacity) {}

  enum class Lookup : std::uint8_t {
    hit,        // `grant` is filled and pinned
    absent,     // map it; insert() decides whether it stays
    in_flight,  // the same gref is in use by another request: serve this one non-persistently
  };

  Lookup pin(GrantRef gref, PersistentGrant& grant, platform::LockWait& wait) {
    const Guard guard(mutex_, wait);
    if (gref.value() >= entries_.size() || entries_[gref.value()].grant.address == nullptr) return Lookup::absent;
    Entry& entry = entries_[gref.value()];
    if (entry.pinned) return Lookup::in_flight;
    entry.pinned = true;
    grant = entry.grant;
    return Lookup::hit;
  }

  // False at the cap, or when another request inserted the same gref meanwhile: the caller owns the mapping then.
  bool insert_pinned(GrantRef gref, const PersistentGrant& grant, platform::LockWait& wait) {
    const Guard guard(mutex_, wait);
    if (count_ >= capacity_) return false;
    if (gref.value() >= entries_.size()) entries_.resize(gref.value() + 1);
    Entry& entry = entries_[gref.value()];
    if (entry.grant.address != nullptr) return false;
    entry = {grant, true};
    ++count_;
    return true;
  }

  void unpin(GrantRef gref, platform::LockWait& wait) {
    const Guard guard(mutex_, wait);
    XBLK_CHECK(entries_[gref.value()].pinned, "unpin pairs with a pin");
    entries_[gref.value()].pinned = false;
  }

  // Everything cached, for the unmap at disconnect. Nothing may be pinned (XSA-371: a pin that is never dropped leaks).
  [[nodiscard]] std::vector<PersistentGrant> take_all() {
    platform::LockWait ignored;
    const Guard guard(mutex_, ignored);
    std::vector<PersistentGrant> all;
    for (const Entry& entry : entries_) {
      XBLK_CHECK(!entry.pinned, "disconnect comes after the last request");
      if (entry.grant.address != nullptr) all.push_back(entry.grant);
    }
    entries_.clear();
    count_ = 0;
    return all;
  }

  [[nodiscard]] std::uint32_t size(platform::LockWait& wait) {
    const Guard guard(mutex_, wait);
    return count_;
  }

 private:
  struct Entry {
    PersistentGrant grant;
    bool pinned = false;
  };
  class Guard {
   public:
    Guard(typename Env::Mutex& mutex, platform::LockWait& wait) : mutex_(mutex) { mutex_.lock(wait); }
    ~Guard() { mutex_.unlock(); }
    Guard(const Guard&) = delete;
    Guard& operator=(const Guard&) = delete;

   private:
    typename Env::Mutex& mutex_;
  };

  typename Env::Mutex mutex_;
  std::uint32_t capacity_;
  std::uint32_t count_ = 0;
  std::vector<Entry> entries_;
};

// Pages for the copy data path. Pages come back zeroed by nobody: a page only ever holds data of the device's own
// frontend, and every byte that goes to the frontend was written by the store first.
template <platform::Env Env>
class FreePages {
 public:
  // `keep`: pages held back for reuse; what is returned beyond it goes to the allocator.
  FreePages(Env& env, std::uint32_t keep) : mutex_(env), keep_(keep) {}

  [[nodiscard]] std::byte* take(platform::LockWait& wait) {
    mutex_.lock(wait);
    std::unique_ptr<Page> page;
    if (!pages_.empty()) {
      page = std::move(pages_.back());
      pages_.pop_back();
    }
    mutex_.unlock();
    if (page == nullptr) page = std::make_unique<Page>();
    return page.release()->bytes;
  }

  void give_back(std::byte* bytes, platform::LockWait& wait) {
    std::unique_ptr<Page> page(reinterpret_cast<Page*>(bytes));
    mutex_.lock(wait);
    if (pages_.size() < keep_) pages_.push_back(std::move(page));
    mutex_.unlock();
  }

  // At disconnect; harmless to a ring that still takes pages.
  void drop() {
    platform::LockWait ignored;
    mutex_.lock(ignored);
    pages_.clear();
    mutex_.unlock();
  }

  [[nodiscard]] std::uint32_t size(platform::LockWait& wait) {
    mutex_.lock(wait);
    const auto n = static_cast<std::uint32_t>(pages_.size());
    mutex_.unlock();
    return n;
  }

 private:
  struct alignas(kPageSize) Page {
    std::byte bytes[kPageSize];
  };
  typename Env::Mutex mutex_;
  std::uint32_t keep_;
  std::vector<std::unique_ptr<Page>> pages_;
};

// Both; one pair per queue, or one for all queues of a device (`shared`).
template <platform::Env Env>
struct Pools {
  Pools(Env& env, const PageOptions& options, bool /*shared*/)
      : persistent(env, options.max_persistent_grants), free_pages(env, options.max_free_pages) {}
  PersistentPool<Env> persistent;
  FreePages<Env> free_pages;
};

}  // namespace xblk::blkback
