// The callers' I/O buffers: memory of the guest that can be granted. Any thread.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

#include "drivers/base/check.hpp"
#include "drivers/base/result.hpp"
#include "drivers/base/units.hpp"
#include "drivers/platform/concepts.hpp"

namespace xblk::blkfront {

template <class P>
class Buffers {
 public:
  Buffers(typename P::Env& env, typename P::Front& hypervisor) : mutex_(env), hypervisor_(hypervisor) {}

  Result<std::span<std::byte>> allocate(DomId backend, Bytes size) {
    const auto pages = static_cast<std::uint32_t>((size.value() + kPageSize - 1) / kPageSize);
    auto block = hypervisor_.allocate_pages(backend, pages);
    if (!block) return forward(block.error(), "grantable memory for I/O buffers");
    platform::LockWait ignored;
    mutex_.lock(ignored);
    blocks_.push_back(*block);
    mutex_.unlock();
    return std::span(block->address, std::size_t{pages} * kPageSize);
  }

  // `reusable` is false while the backend holds a page of any request that was given up: it may lie in this block,
  // which then stays out of circulation (XSA-396).
  void free(std::span<std::byte> block, bool reusable) {
    platform::LockWait ignored;
    mutex_.lock(ignored);
    const auto found =
        std::find_if(blocks_.begin(), blocks_.end(), [&](const auto& b) { return b.address == block.data(); });
    XBLK_CHECK(found != blocks_.end(), "freed what allocate() gave");
    if (reusable) hypervisor_.free_pages(*found);
    blocks_.erase(found);
    mutex_.unlock();
  }

 private:
  typename P::Env::Mutex mutex_;
  typename P::Front& hypervisor_;
  std::vector<platform::PageBlock> blocks_;
};

}  // namespace xblk::blkfront
