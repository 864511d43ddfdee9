// What a point needs of memory, grants and mappings at most: the formulas of Linux blkfront and blkback.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "agent/plan/points.hpp"
#include "drivers/base/units.hpp"

namespace xblk::plan {

// A v1 grant table of the emulated hypervisor: 64 frames (Xen's default max_grant_frames) of 512 entries of 8 bytes.
inline constexpr std::uint64_t kGrantTableEntries = 64 * 512;

// No guest can have more bytes in flight than it has grants for pages.
inline constexpr Bytes kBytesInFlightMax{kGrantTableEntries * kPageSize};

struct Capacity {
  Bytes guest_memory;               // rings and granted data pages of one guest
  std::uint64_t guest_grants = 0;   // of one guest
  std::uint64_t host_mappings = 0;  // of the host process, all guests together
};

Capacity capacity_of(const Point& point);

// One line per limit that is exceeded, saying what happens and what to do; nullopt when the point fits.
std::optional<std::string> capacity_warning(const Capacity& capacity, std::uint64_t max_map_count);

}  // namespace xblk::plan
