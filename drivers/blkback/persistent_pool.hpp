// Grants that stay mapped from one request to the next (seed 003). Below the cap a new gref is kept; at the cap it is
// mapped for its request only, and the policy says whether room is made for the next ones.
//
// No operation walks the pool (but the list lookup, which is its point): grants that are not in use stand on a list in
// the order of their last use, and both ways of giving grants up take from its cold end, a slice at a time.
#pragma once

#include <boost/intrusive/list.hpp>

#include <algorithm>
#include <cstdint>
#include <deque>
#include <new>
#include <span>
#include <vector>

#include "drivers/base/check.hpp"
#include "drivers/base/units.hpp"
#include "drivers/blkback/page_options.hpp"
#include "drivers/blkback/persistent_index.hpp"
#include "drivers/blkback/pool_lock.hpp"
#include "drivers/platform/concepts.hpp"

namespace xblk::blkback {

inline constexpr std::uint32_t kLruPercent = 5;     // given up at once (LRU_PERCENT_CLEAN of blkback.c)
inline constexpr Nanos kLruInterval = millis(100);  // ... and not more often (LRU_INTERVAL)
inline constexpr std::size_t kPurgeSlice = 32;      // grants unmapped by one call

template <platform::Env Env>
class PersistentPool {
 public:
  PersistentPool(Env& env, const PageOptions& options, bool shared)
      : lock_(env, shared),
        capacity_(options.max_persistent_grants),
        purge_(options.purge),
        unused_limit_(options.unused_limit),
        index_(options.lookup) {}
  ~PersistentPool() { XBLK_CHECK(count_ == 0, "take_all() comes before the end of the pool"); }
  PersistentPool(const PersistentPool&) = delete;
  PersistentPool& operator=(const PersistentPool&) = delete;

  // The grant, now in use by the caller alone. Null: it is not cached, or another request uses it; map it, and let
  // insert_pinned() decide whether it stays.
  [[nodiscard]] PersistentGrant* pin(GrantRef gref, std::uint64_t& steps, platform::LockWait& wait) {
    const Guard guard(lock_, wait);
    PersistentGrant* grant = index_.find(gref, steps);
    if (grant == nullptr || grant->pinned()) return nullptr;
    unpinned_.erase(unpinned_.iterator_to(*grant));
    return grant;
  }

  // Null: it is not kept, and the caller owns the mapping. At the cap; or the same gref is cached already, for another
  // request or for an earlier segment of this one; or there is no memory for it.
  [[nodiscard]] PersistentGrant* insert_pinned(GrantRef gref, MapHandle handle, std::byte* address,
                                               std::uint64_t& steps, platform::LockWait& wait) {
    const Guard guard(lock_, wait);
    if (count_ >= capacity_) {
      overflowed_ = purge_ == blkif::Purge::lru;
      return nullptr;
    }
    if (index_.find(gref, steps) != nullptr) return nullptr;
    try {
      if (spare_.empty()) spare_.push_back(grants_.emplace_back());
      PersistentGrant& grant = spare_.back();
      grant.gref = gref;
      grant.handle = handle;
      grant.address = address;
      index_.insert(grant);
    } catch (const std::bad_alloc&) {
      return nullptr;
    }
    PersistentGrant& grant = spare_.back();
    spare_.pop_back();
    ++count_;
    return &grant;
  }

  // `now`: about; within the dispatch round is near enough.
  void unpin(PersistentGrant& grant, Instant now, platform::LockWait& wait) {
    const Guard guard(lock_, wait);
    XBLK_CHECK(grant.pinned(), "unpin pairs with a pin");
    grant.last_use = now;
    unpinned_.push_back(grant);
  }

  // Takes grants out that are due to be given up, coldest first and never one in use; how many. Less than `into` holds:
  // no more are due.
  [[nodiscard]] std::size_t take_due(Instant now, std::span<platform::UnmapOp> into, platform::LockWait& wait) {
    const Guard guard(lock_, wait);
    if (overflowed_ && now >= next_purge_) {
      overflowed_ = false;
      next_purge_ = now + kLruInterval;
      to_purge_ = std::max(1u, static_cast<std::uint32_t>(std::uint64_t{capacity_} * kLruPercent / 100));
    }
    std::size_t taken = 0;
    while (taken < into.size() && !unpinned_.empty()) {
      PersistentGrant& coldest = unpinned_.front();
      if (to_purge_ == 0 && now < coldest.last_use + unused_limit_) break;
      if (to_purge_ > 0) --to_purge_;
      into[taken++] = {coldest.handle, coldest.address};
      unpinned_.pop_front();
      index_.erase(coldest);
      spare_.push_back(coldest);
      --count_;
    }
    if (unpinned_.empty()) to_purge_ = 0;  // the rest is in use, that is: not cold
    return taken;
  }

  // When take_due() will have something, if no grant is used until then.
  [[nodiscard]] Instant next_due(platform::LockWait& wait) {
    const Guard guard(lock_, wait);
    if (unpinned_.empty()) return Instant::never();
    if (to_purge_ > 0) return Instant();
    const Instant unused = unpinned_.front().last_use + unused_limit_;
    return overflowed_ ? std::min(unused, next_purge_) : unused;
  }

  // Everything cached, for the unmap at disconnect. Nothing may be pinned (XSA-371: a pin that is never dropped leaks).
  [[nodiscard]] std::vector<platform::UnmapOp> take_all() {
    platform::LockWait ignored;
    const Guard guard(lock_, ignored);
    XBLK_CHECK(unpinned_.size() == count_, "disconnect comes after the last request");
    std::vector<platform::UnmapOp> all;
    for (const PersistentGrant& grant : unpinned_) all.push_back({grant.handle, grant.address});
    while (!unpinned_.empty()) {
      index_.erase(unpinned_.front());
      unpinned_.pop_front();
    }
    spare_.clear();
    grants_.clear();
    count_ = 0;
    overflowed_ = false;
    return all;
  }

  [[nodiscard]] std::uint32_t size(platform::LockWait& wait) {
    const Guard guard(lock_, wait);
    return count_;
  }
  // In use by a request. Counts them: for tests and checks.
  [[nodiscard]] std::uint32_t pinned() {
    platform::LockWait ignored;
    const Guard guard(lock_, ignored);
    return count_ - static_cast<std::uint32_t>(unpinned_.size());
  }

 private:
  using Guard = typename PoolLock<Env>::Guard;
  using List = boost::intrusive::list<PersistentGrant, boost::intrusive::base_hook<LruHook>,
                                      boost::intrusive::constant_time_size<false>>;

  PoolLock<Env> lock_;
  const std::uint32_t capacity_;
  const blkif::Purge purge_;
  const Nanos unused_limit_;
  PersistentIndex index_;
  std::deque<PersistentGrant> grants_;
  List unpinned_;  // coldest first
  List spare_;     // of grants_: cached no more, to be used again
  std::uint32_t count_ = 0;
  bool overflowed_ = false;  // a grant could not be kept, and room is to be made
  std::uint32_t to_purge_ = 0;
  Instant next_purge_{};
};

}  // namespace xblk::blkback
