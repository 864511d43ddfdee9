// Pages that stay granted to the backend for as long as the device is connected (seed 003, and blkfront's
// `info->grants`): the frontend copies through them, the backend maps each one once.
//
// One pool per queue, used under that queue's ring lock; or one per device (`Pools::per_device`, as before the change
// of seed 000), where every queue takes the pool's own lock as well.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <vector>

#include "drivers/base/units.hpp"
#include "drivers/platform/concepts.hpp"

namespace xblk::blkfront {

struct GrantedPage {
  std::byte* address = nullptr;
  GrantRef gref{};
};

template <class P>
class GrantPool {
 public:
  // Grows on demand up to `capacity` pages: ring slots x (segments + indirect pages) of the queues that share it.
  // `shared`: by all queues of the device, so that a failing take() may only mean that another queue holds the pages.
  GrantPool(typename P::Env& env, typename P::Front& hypervisor, DomId backend, std::uint32_t capacity, bool shared)
      : mutex_(env), hypervisor_(hypervisor), backend_(backend), capacity_(capacity), shared_(shared) {}
  ~GrantPool() { release(); }
  GrantPool(const GrantPool&) = delete;
  GrantPool& operator=(const GrantPool&) = delete;

  // All `count` pages or none: a request is never half built. Last in, first out, so that the pages in use are the ones
  // that the backend has mapped already.
  [[nodiscard]] bool take(std::uint32_t count, std::vector<GrantedPage>& into, platform::LockWait& wait) {
    mutex_.lock(wait);
    const bool enough = count <= free_.size() || grow(count - static_cast<std::uint32_t>(free_.size()));
    if (enough) {
      into.insert(into.end(), free_.end() - count, free_.end());
      free_.resize(free_.size() - count);
    }
    mutex_.unlock();
    return enough;
  }

  void give_back(std::vector<GrantedPage>& pages, platform::LockWait& wait) {
    mutex_.lock(wait);
    free_.insert(free_.end(), pages.begin(), pages.end());
    mutex_.unlock();
    pages.clear();
  }

  [[nodiscard]] bool exclusive() const { return !shared_; }
  // For a gauge: any queue may ask while another one grows the pool.
  [[nodiscard]] std::uint32_t granted() const { return granted_.load(std::memory_order_relaxed); }

  // After the backend has unmapped everything. A page that the backend still holds is never reused: it leaks until the
  // domain ends, and is counted (XSA-396).
  std::uint32_t release() {
    std::uint32_t kept = 0;
    for (const auto& page : free_) kept += hypervisor_.end_access(page.gref) ? 0 : 1;
    if (kept == 0) {
      for (const auto& block : blocks_) hypervisor_.free_pages(block);
    }
    free_.clear();
    blocks_.clear();
    granted_ = 0;
    return kept;
  }

 private:
  static constexpr std::uint32_t kGrowPages = 32;  // at once, contiguous, so that the backend can map them as one

  [[nodiscard]] bool grow(std::uint32_t needed) {
    while (needed > 0) {
      const std::uint32_t pages = std::min(std::max(needed, kGrowPages), capacity_ - granted());
      if (pages == 0 || !add_block(pages)) return false;
      needed -= std::min(needed, pages);
    }
    return true;
  }

  [[nodiscard]] bool add_block(std::uint32_t pages) {
    auto block = hypervisor_.allocate_pages(backend_, pages);
    if (!block) return false;
    blocks_.push_back(*block);
    for (std::uint32_t i = 0; i < pages; ++i) {
      auto gref =
          hypervisor_.grant(backend_, FrameNumber(block->first_frame.value() + i), platform::Access::read_write);
      if (!gref) {  // grant table full: what was granted stays usable
        if (i == 0) {
          hypervisor_.free_pages(*block);  // or each retry would eat another block
          blocks_.pop_back();
        }
        return false;
      }
      free_.push_back({block->address + i * kPageSize, *gref});
      ++granted_;
    }
    return true;
  }

  typename P::Env::Mutex mutex_;
  typename P::Front& hypervisor_;
  DomId backend_;
  std::uint32_t capacity_;
  bool shared_;
  std::atomic<std::uint32_t> granted_{0};
  std::vector<GrantedPage> free_;
  std::vector<platform::PageBlock> blocks_;
};

}  // namespace xblk::blkfront
