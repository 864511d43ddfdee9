// Pages of our own for grant copies. Nobody zeroes them: a page only ever holds data of the device's own frontend, and
// every byte that goes to the frontend was written by the store first.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <vector>

#include "drivers/base/units.hpp"
#include "drivers/blkback/page_options.hpp"
#include "drivers/blkback/pool_lock.hpp"
#include "drivers/platform/concepts.hpp"

namespace xblk::blkback {

template <platform::Env Env>
class FreePages {
 public:
  FreePages(Env& env, const PageOptions& options, bool shared) : lock_(env, shared), keep_(options.max_free_pages) {}

  // Null: out of memory.
  [[nodiscard]] std::byte* take(platform::LockWait& wait) {
    if (auto page = pop(wait)) return page.release()->bytes;
    auto* page = new (std::nothrow) Page;
    return page == nullptr ? nullptr : page->bytes;
  }

  void give_back(std::byte* bytes, platform::LockWait& wait) {
    // Freed, if it is one too many, after the lock.
    std::unique_ptr<Page> page(reinterpret_cast<Page*>(bytes));
    const Guard guard(lock_, wait);
    if (pages_.size() < keep_) pages_.push_back(std::move(page));
  }

  // At disconnect; harmless to a ring that still takes pages.
  void drop() {
    platform::LockWait ignored;
    const Guard guard(lock_, ignored);
    pages_.clear();
  }

  [[nodiscard]] std::uint32_t size(platform::LockWait& wait) {
    const Guard guard(lock_, wait);
    return static_cast<std::uint32_t>(pages_.size());
  }

 private:
  struct alignas(kPageSize) Page {
    std::byte bytes[kPageSize];
  };
  using Guard = typename PoolLock<Env>::Guard;

  [[nodiscard]] std::unique_ptr<Page> pop(platform::LockWait& wait) {
    const Guard guard(lock_, wait);
    if (pages_.empty()) return nullptr;
    auto page = std::move(pages_.back());
    pages_.pop_back();
    return page;
  }

  PoolLock<Env> lock_;
  const std::uint32_t keep_;
  std::vector<std::unique_ptr<Page>> pages_;
};

}  // namespace xblk::blkback
