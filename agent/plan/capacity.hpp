// What a point needs at most of memory, grants, mappings, xenstore nodes and descriptors (the formulas of Linux
// blkfront and blkback, and what our drivers add), against the limits that it meets there. A limit that is too small
// degrades as it says; it is a warning, never an error.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "agent/host/limits.hpp"
#include "agent/plan/points.hpp"
#include "drivers/base/units.hpp"

namespace xblk::plan {

// A v1 grant table of the emulated hypervisor: 64 frames (Xen's default max_grant_frames) of 512 entries of 8 bytes.
inline constexpr std::uint64_t kGrantTableEntries = 64 * 512;

// No guest can have more bytes in flight than it has grants for pages.
inline constexpr Bytes kBytesInFlightMax{kGrantTableEntries * kPageSize};

struct Capacity {
  Bytes guest_memory;                 // rings and granted data pages of one guest
  std::uint64_t guest_grants = 0;     // of one guest
  std::uint64_t host_mappings = 0;    // of the host process, all guests together
  std::uint64_t guest_nodes = 0;      // xenstore nodes that one guest owns
  std::uint64_t largest_node = 0;     // bytes of the largest of them, as xenstored counts
  std::uint64_t host_open_files = 0;  // of the host process, all guests together
};

Capacity capacity_of(const Point& point, const StoreSpec& store);
Bytes guest_memory_of(const Point& point);

struct Limit {
  std::string name;  // "vm.max_map_count"
  std::uint64_t value = 0;
  std::uint64_t need = 0;
  std::string of;      // what is counted
  std::string beyond;  // what happens when the need is met beyond it, and what to do

  [[nodiscard]] bool exceeded() const { return need > value; }
};

// All limits, also those that are far away.
std::vector<Limit> limits_of(const Capacity& capacity, const host::Limits& machine);

// The worst of each over all points, with the point that needs most.
struct WorstLimit {
  Limit limit;
  std::string point;
};
std::vector<WorstLimit> worst_limits(const std::vector<Point>& points, const StoreSpec& store,
                                     const host::Limits& machine);

// "a guest's grant entries: needs 67648 of 32768: ..."
std::string warning_of(const Limit& limit);

}  // namespace xblk::plan
