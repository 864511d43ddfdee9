// The version 1 grant entry as guest and hypervisor share it, and the atomic protocols of both ends on it.
// Layout, flags and the rules for invalidating an entry: xen/include/public/grant_table.h.
#pragma once

#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "drivers/base/units.hpp"
#include "drivers/platform/grants.hpp"

namespace xblk::hypervisor {

static_assert(std::endian::native == std::endian::little, "flags and domid are accessed as one little-endian word");

inline constexpr std::uint32_t kGtfPermitAccess = 1;   // GTF_permit_access
inline constexpr std::uint32_t kGtfTypeMask = 3;       // GTF_type_mask
inline constexpr std::uint32_t kGtfReadOnly = 1 << 2;  // GTF_readonly
inline constexpr std::uint32_t kGtfReading = 1 << 3;   // GTF_reading: set by the hypervisor while mapped
inline constexpr std::uint32_t kGtfWriting = 1 << 4;   // GTF_writing: set by the hypervisor while mapped for writing
inline constexpr std::uint32_t kGtfSubPage = 1 << 8;   // GTF_sub_page: copy only, so never mappable

inline constexpr std::uint32_t kReservedGrants = 8;   // GNTTAB_NR_RESERVED_ENTRIES: console, xenstore
inline constexpr std::uint32_t kMaxGrantFrames = 64;  // Xen's default of max_grant_frames

// struct grant_entry_v1 {u16 flags; domid_t domid; u32 frame;}. Flags and domid form one word, because both ends change
// them together with one 32-bit compare-and-swap.
struct GrantEntry {
  std::uint32_t header;  // flags | domid << 16
  std::uint32_t frame;
};
static_assert(sizeof(GrantEntry) == 8);

inline constexpr std::uint32_t kGrantsPerFrame = kPageSize / sizeof(GrantEntry);  // 512

constexpr std::uint32_t make_header(DomId peer, platform::Access access) {
  const std::uint32_t read_only = access == platform::Access::read_only ? kGtfReadOnly : 0;
  return kGtfPermitAccess | read_only | static_cast<std::uint32_t>(peer.value()) << 16;
}
constexpr DomId header_domain(std::uint32_t header) {
  return DomId(static_cast<std::uint16_t>(header >> 16));
}

// ---- Guest end ------------------------------------------------------------------------------------------------------

// Fills an unused entry: frame first, then the header with release, so that whoever sees GTF_permit_access sees the
// frame.
inline void publish_grant(GrantEntry& entry, DomId peer, FrameNumber frame, platform::Access access) {
  std::atomic_ref(entry.frame).store(frame.value(), std::memory_order_relaxed);
  std::atomic_ref(entry.header).store(make_header(peer, access), std::memory_order_release);
}

inline bool is_granted(GrantEntry& entry) {
  return (std::atomic_ref(entry.header).load(std::memory_order_relaxed) & kGtfTypeMask) == kGtfPermitAccess;
}

// "Invalidating an in-use GTF_permit_access entry" of grant_table.h: succeeds only while nobody holds the page. The
// compare-and-swap closes the gap between looking at the bits and clearing the entry (XSA-396).
inline bool withdraw_grant(GrantEntry& entry) {
  std::atomic_ref header(entry.header);
  std::uint32_t seen = header.load(std::memory_order_acquire);
  do {
    if ((seen & (kGtfReading | kGtfWriting)) != 0) return false;
  } while (!header.compare_exchange_weak(seen, 0, std::memory_order_acq_rel, std::memory_order_acquire));
  return true;
}

// ---- Hypervisor end -------------------------------------------------------------------------------------------------

// Xen's _set_status_v1(): checks type, domain and permission, and marks the entry as in use, in one compare-and-swap.
// A guest that keeps rewriting the entry loses after five attempts instead of keeping the hypervisor busy.
inline platform::GrantStatus set_status(GrantEntry& entry, DomId mapper, platform::Access access) {
  constexpr int kRetries = 4;
  const bool writing = access == platform::Access::read_write;
  std::atomic_ref header(entry.header);
  std::uint32_t seen = header.load(std::memory_order_acquire);
  for (int attempt = 0; attempt <= kRetries; ++attempt) {
    if ((seen & (kGtfTypeMask | kGtfSubPage)) != kGtfPermitAccess || header_domain(seen) != mapper ||
        (writing && (seen & kGtfReadOnly) != 0)) {
      return platform::GrantStatus::general_error;
    }
    const std::uint32_t marked = seen | kGtfReading | (writing ? kGtfWriting : 0);
    if (header.compare_exchange_strong(seen, marked, std::memory_order_acq_rel, std::memory_order_acquire)) {
      return platform::GrantStatus::okay;
    }
  }
  return platform::GrantStatus::general_error;
}

// gnttab_clear_flags(). Release: our last access to the page is ordered before the guest sees the bits gone.
inline void clear_status(GrantEntry& entry, std::uint32_t flags) {
  std::atomic_ref(entry.header).fetch_and(~flags, std::memory_order_release);
}

// Only meaningful after set_status() succeeded: its acquire orders this load after the guest's store of the frame.
inline FrameNumber entry_frame(const GrantEntry& entry) {
  return FrameNumber(std::atomic_ref(const_cast<GrantEntry&>(entry).frame).load(std::memory_order_relaxed));
}

}  // namespace xblk::hypervisor
