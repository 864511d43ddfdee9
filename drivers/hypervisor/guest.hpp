// What every guest of the emulation does inside its own memory: hand out pages, fill grant entries, take them back.
// None of it asks the hypervisor: as on Xen, granting and ending access are stores to the shared grant-table frames.
#pragma once

#include <cstdint>
#include <cstring>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "drivers/base/check.hpp"
#include "drivers/base/result.hpp"
#include "drivers/base/units.hpp"
#include "drivers/hypervisor/grant_entry.hpp"
#include "drivers/hypervisor/lock_policy.hpp"
#include "drivers/platform/grants.hpp"

namespace xblk::hypervisor {

// Contiguous blocks of frames, first fit, neighbours joined again when freed.
class FrameAllocator {
 public:
  explicit FrameAllocator(std::uint32_t frames) { free_.emplace(0, frames); }

  std::optional<FrameNumber> allocate(std::uint32_t count) {
    for (auto it = free_.begin(); it != free_.end(); ++it) {
      const auto [first, length] = *it;
      if (length < count) continue;
      free_.erase(it);
      if (length > count) free_.emplace(first + count, length - count);
      return FrameNumber(first);
    }
    return std::nullopt;
  }

  void release(FrameNumber first_frame, std::uint32_t count) {
    std::uint32_t first = first_frame.value();
    const auto next = free_.lower_bound(first);
    XBLK_CHECK(next == free_.end() || first + count <= next->first, "a block is freed once");
    if (next != free_.begin()) {
      const auto before = std::prev(next);
      XBLK_CHECK(before->first + before->second <= first, "a block is freed once");
      if (before->first + before->second == first) {
        first = before->first;
        count += before->second;
        free_.erase(before);
      }
    }
    if (next != free_.end() && next->first == first + count) {
      count += next->second;
      free_.erase(next);
    }
    free_.emplace(first, count);
  }

 private:
  std::map<std::uint32_t, std::uint32_t> free_;  // first frame -> length
};

// The part of platform::GrantIssuer that is the same wherever the guest runs. Waits for its lock are not reported: the
// seam measures them on the mapping side only.
template <class Env>
class GuestPages {
 public:
  GuestPages(Env& env, DomId domain, std::byte* memory, std::uint32_t pages, std::byte* grant_frames,
             std::uint32_t frames)
      : lock_(env),
        domain_(domain),
        memory_(memory),
        pages_(pages),
        entries_(reinterpret_cast<GrantEntry*>(grant_frames)),
        entry_count_(frames * kGrantsPerFrame),
        frames_free_(pages) {
    grants_free_.reserve(entry_count_);
    for (std::uint32_t i = entry_count_; i-- > kReservedGrants;) grants_free_.push_back(GrantRef(i));
  }

  // Zeroed, so that no earlier contents reach the peer through a granted page (XSA-403).
  Result<platform::PageBlock> allocate_pages(DomId, std::uint32_t count) {
    if (count == 0) return fail(EINVAL, "allocate 0 guest pages: a block has at least one");
    std::optional<FrameNumber> first;
    {
      platform::LockWait unmeasured;
      const Exclusive guard(lock_, unmeasured);
      first = frames_free_.allocate(count);
    }
    if (!first) {
      return fail(ENOMEM, fmt::format("domain {}: no {} adjacent free pages left of its {}; give the guest more memory",
                                      domain_.value(), count, pages_));
    }
    std::byte* address = memory_ + std::size_t{first->value()} * kPageSize;
    std::memset(address, 0, std::size_t{count} * kPageSize);
    return platform::PageBlock{address, *first, count};
  }

  void free_pages(const platform::PageBlock& block) {
    platform::LockWait unmeasured;
    const Exclusive guard(lock_, unmeasured);
    frames_free_.release(block.first_frame, block.pages);
  }

  [[nodiscard]] std::optional<FrameNumber> frame_of(const std::byte* address) const {
    const auto offset = reinterpret_cast<std::uintptr_t>(address) - reinterpret_cast<std::uintptr_t>(memory_);
    if (offset >= std::size_t{pages_} * kPageSize) return std::nullopt;  // also below memory_: the difference wraps
    return FrameNumber(static_cast<std::uint32_t>(offset / kPageSize));
  }

  Result<GrantRef> grant(DomId peer, FrameNumber frame, platform::Access access) {
    GrantRef gref;
    {
      platform::LockWait unmeasured;
      const Exclusive guard(lock_, unmeasured);
      if (grants_free_.empty()) {
        return fail(ENOSPC,
                    fmt::format("domain {}: grant table full; raise its limit of grant frames", domain_.value()));
      }
      gref = grants_free_.back();
      grants_free_.pop_back();
    }
    publish_grant(entries_[gref.value()], peer, frame, access);
    return gref;
  }

  bool end_access(GrantRef gref) {
    XBLK_CHECK(gref.value() >= kReservedGrants && gref.value() < entry_count_, "only a granted reference is ended");
    XBLK_CHECK(is_granted(entries_[gref.value()]), "a grant is ended once");
    if (!withdraw_grant(entries_[gref.value()])) return false;
    platform::LockWait unmeasured;
    const Exclusive guard(lock_, unmeasured);
    grants_free_.push_back(gref);
    return true;
  }

  [[nodiscard]] DomId domain() const { return domain_; }

 private:
  typename Env::Mutex lock_;  // both free lists
  const DomId domain_;
  std::byte* const memory_;
  const std::uint32_t pages_;
  GrantEntry* const entries_;
  const std::uint32_t entry_count_;
  FrameAllocator frames_free_;
  std::vector<GrantRef> grants_free_;
};

}  // namespace xblk::hypervisor
