// Pages of our own that the backend gets granted, so that a request's data can be copied through them.
//
// Keep::granted: they stay granted for as long as the device is connected (seed 003, and blkfront's `info->grants`);
// the backend maps each one once. Keep::pages: only the page stays, granted for the time of one request (XSA-403).
//
// One pool per queue, used under that queue's ring lock; or one per device (`Pools::per_device`, as before the change
// of seed 000), where every queue takes the pool's own lock as well.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "drivers/base/check.hpp"
#include "drivers/base/units.hpp"
#include "drivers/platform/concepts.hpp"

namespace xblk::blkfront {

struct GrantedPage {
  std::byte* address = nullptr;
  GrantRef gref{};
};

enum class Keep : std::uint8_t { granted, pages };

struct PoolSetup {
  DomId backend{};
  std::uint32_t capacity = 0;  // pages: ring slots x pages of a request, of all the queues that share the pool
  bool shared = false;         // by all queues of the device
  Keep keep = Keep::granted;
  bool clean = false;  // a page that no request uses is all zeros: nothing of an old request is there for the next
};

// What the operations of a pool cost, for the counters of the queue that called.
struct PoolCosts {
  platform::LockWait wait;
  std::uint64_t granted = 0;
  std::uint64_t ended = 0;
};

template <class P>
class GrantPool {
 public:
  GrantPool(typename P::Env& env, typename P::Front& hypervisor, const PoolSetup& setup)
      : mutex_(env), hypervisor_(hypervisor), setup_(setup) {}
  ~GrantPool() {
    PoolCosts ignored;
    release(ignored);
  }
  GrantPool(const GrantPool&) = delete;
  GrantPool& operator=(const GrantPool&) = delete;

  // Fills the front of `into` with granted pages and returns how many; 0, and nothing is held, if there are not even
  // `least`. Grows on demand up to the capacity. Last in, first out, so that the pages in use are the ones that the
  // backend has mapped already.
  [[nodiscard]] std::uint32_t take(std::span<GrantedPage> into, std::uint32_t least, platform::Access access,
                                   PoolCosts& costs) {
    const Guard guard(*this, costs);
    if (into.size() > free_.size()) grow(static_cast<std::uint32_t>(into.size() - free_.size()), costs);
    const std::size_t n = std::min(into.size(), free_.size());
    if (n < least) return 0;
    const auto first = free_.end() - static_cast<std::ptrdiff_t>(n);
    std::copy_n(first, n, into.begin());
    std::size_t usable = n;
    if (setup_.keep == Keep::pages) usable = grant_each(into.first(n), least, access, costs);
    free_.erase(first, first + static_cast<std::ptrdiff_t>(usable));
    return static_cast<std::uint32_t>(usable);
  }

  // False when the backend still maps a page that was granted for this request only: that page is never reused
  // (XSA-396), and what becomes of the device is the caller's decision.
  [[nodiscard]] bool give_back(std::span<GrantedPage> pages, PoolCosts& costs) {
    auto kept = pages.end();
    if (setup_.keep == Keep::pages) {
      kept = std::partition(pages.begin(), pages.end(), [&](const GrantedPage& page) { return end(page.gref, costs); });
    }
    // Not before the grant has ended. Into a page that stays granted the backend may write at any time, but nothing
    // that it does not know already.
    if (setup_.clean) {
      std::for_each(pages.begin(), kept, [](const GrantedPage& page) { std::memset(page.address, 0, kPageSize); });
    }
    const Guard guard(*this, costs);
    free_.insert(free_.end(), pages.begin(), kept);
    held_.insert(held_.end(), kept, pages.end());
    return kept == pages.end();
  }

  // Of requests that were given up: the backend may still write to these pages, so they wait for release().
  void abandon(std::span<const GrantedPage> pages) {
    PoolCosts uncounted;  // the device is ending
    const Guard guard(*this, uncounted);
    held_.insert(held_.end(), pages.begin(), pages.end());
  }

  [[nodiscard]] bool shared() const { return setup_.shared; }
  // For a gauge: any queue may ask while another one changes the pool.
  [[nodiscard]] std::uint32_t granted() const { return granted_.load(std::memory_order_relaxed); }

  // After the backend has unmapped everything. A page that the backend still holds is never reused: it leaks until the
  // domain ends, and is counted (XSA-396).
  std::uint32_t release(PoolCosts& costs) {
    if (setup_.keep == Keep::granted) held_.insert(held_.end(), free_.begin(), free_.end());
    free_.clear();
    std::erase_if(held_, [&](const GrantedPage& page) { return end(page.gref, costs); });
    const auto kept = static_cast<std::uint32_t>(held_.size());
    if (kept == 0) {
      for (const auto& block : blocks_) hypervisor_.free_pages(block);
    }
    blocks_.clear();
    held_.clear();
    pages_ = 0;
    granted_.store(0, std::memory_order_relaxed);
    return kept;
  }

 private:
  static constexpr std::uint32_t kGrowPages = 32;  // at once, contiguous, so that the backend can map them as one

  // A pool of one queue is under its ring's lock already.
  class Guard {
   public:
    Guard(GrantPool& pool, PoolCosts& costs) : pool_(pool) {
      if (pool_.setup_.shared) pool_.mutex_.lock(costs.wait);
    }
    ~Guard() {
      if (pool_.setup_.shared) pool_.mutex_.unlock();
    }
    Guard(const Guard&) = delete;
    Guard& operator=(const Guard&) = delete;

   private:
    GrantPool& pool_;
  };

  void grow(std::uint32_t needed, PoolCosts& costs) {
    for (std::uint32_t room = setup_.capacity - pages_; needed > 0 && room > 0; room = setup_.capacity - pages_) {
      const std::uint32_t wanted = std::min(std::max(needed, kGrowPages), room);
      // Near the end of memory or of the grant table, no more than is needed: others need some, too.
      const std::uint32_t added = add_block(wanted, costs) ? wanted : add_block(1, costs) ? 1 : 0;
      if (added == 0) return;
      needed -= std::min(needed, added);
    }
  }

  // All of its pages or none.
  [[nodiscard]] bool add_block(std::uint32_t pages, PoolCosts& costs) {
    const auto block = hypervisor_.allocate_pages(setup_.backend, pages);
    if (!block) return false;
    const std::size_t before = free_.size();
    for (std::uint32_t i = 0; i < pages; ++i) {
      GrantedPage page{block->address + std::size_t{i} * kPageSize, {}};
      if (setup_.keep == Keep::granted && !grant(page, platform::Access::read_write, costs)) break;
      free_.push_back(page);
    }
    if (free_.size() == before + pages) {
      blocks_.push_back(*block);
      pages_ += pages;
      return true;
    }
    const std::size_t held = held_.size();
    for (; free_.size() > before; free_.pop_back()) end_or_hold(free_.back(), costs);
    if (held_.size() == held) {
      hypervisor_.free_pages(*block);
    } else {
      blocks_.push_back(*block);  // for release()
    }
    return false;
  }

  // How many could be granted; none are if that is less than `least`.
  std::size_t grant_each(std::span<GrantedPage> pages, std::uint32_t least, platform::Access access, PoolCosts& costs) {
    std::size_t n = 0;
    while (n < pages.size() && grant(pages[n], access, costs)) ++n;
    if (n >= least) return n;
    const std::size_t held = held_.size();
    for (const auto& page : pages.first(n)) end_or_hold(page, costs);
    for (std::size_t i = held; i < held_.size(); ++i) {
      std::erase_if(free_, [&](const GrantedPage& page) { return page.address == held_[i].address; });
    }
    return 0;
  }

  // The backend was not told of this grant, but a hostile one can guess a reference: then it may hold the page.
  void end_or_hold(const GrantedPage& page, PoolCosts& costs) {
    if (!end(page.gref, costs)) held_.push_back(page);
  }

  bool grant(GrantedPage& page, platform::Access access, PoolCosts& costs) {
    const auto frame = hypervisor_.frame_of(page.address);
    XBLK_CHECK(frame.has_value(), "the pool's pages are grantable memory");
    const auto gref = hypervisor_.grant(setup_.backend, *frame, access);
    if (!gref) return false;
    page.gref = *gref;
    ++costs.granted;
    granted_.fetch_add(1, std::memory_order_relaxed);
    return true;
  }

  bool end(GrantRef gref, PoolCosts& costs) {
    if (!hypervisor_.end_access(gref)) return false;
    ++costs.ended;
    granted_.fetch_sub(1, std::memory_order_relaxed);
    return true;
  }

  typename P::Env::Mutex mutex_;
  typename P::Front& hypervisor_;
  const PoolSetup setup_;
  std::uint32_t pages_ = 0;                // in use or free; what the capacity bounds
  std::atomic<std::uint32_t> granted_{0};  // of them; also read by queues that do not hold the lock
  std::vector<GrantedPage> free_;
  std::vector<GrantedPage> held_;  // not to be reused
  std::vector<platform::PageBlock> blocks_;
};

}  // namespace xblk::blkfront
