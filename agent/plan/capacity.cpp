#include "agent/plan/capacity.hpp"

#include <algorithm>
#include <charconv>

#include "drivers/base/check.hpp"
#include "drivers/blkif/ring_layout.hpp"

namespace xblk::plan {
namespace {

constexpr std::uint64_t kDirectSegments = 11;            // BLKIF_MAX_SEGMENTS_PER_REQUEST
constexpr std::uint64_t kSegmentsPerIndirectPage = 512;  // of 8 bytes in a page of 4 KiB

std::uint64_t number(const Policy& policy, const std::string& key) {
  const auto found = policy.find(key);
  XBLK_CHECK(found != policy.end(), "a point's policies are complete");
  std::uint64_t value = 0;
  std::from_chars(found->second.data(), found->second.data() + found->second.size(), value);
  return value;
}

// What both ends can have in force is the smaller of their values.
std::uint64_t negotiated(const Point& point, const std::string& key) {
  return std::min(number(point.front, key), number(point.back, key));
}

struct Ring {
  std::uint64_t pages = 0;
  std::uint64_t data_grants = 0;      // slots x segments
  std::uint64_t indirect_grants = 0;  // pages of indirect descriptors
};

// Grants per ring = slots x (segments + ceil(segments / 512)); 32 x (32 + 1) = 1056 is blkback's default cap.
Ring ring_of(const Point& point) {
  Ring ring;
  ring.pages = std::uint64_t{1} << negotiated(point, "ring-page-order");
  const std::uint64_t slots = blkif::ring_slots(static_cast<std::uint32_t>(ring.pages), blkif::kNativeAbi);
  const std::uint64_t indirect = negotiated(point, "indirect-segments");
  const bool uses_indirect = indirect > kDirectSegments;
  ring.data_grants = slots * (uses_indirect ? indirect : kDirectSegments);
  if (uses_indirect) {
    ring.indirect_grants = slots * ((indirect + kSegmentsPerIndirectPage - 1) / kSegmentsPerIndirectPage);
  }
  return ring;
}

}  // namespace

Capacity capacity_of(const Point& point) {
  const Ring ring = ring_of(point);
  const std::uint64_t queues = negotiated(point, "queues");
  const std::uint64_t per_ring = ring.data_grants + ring.indirect_grants;
  const bool persistent = negotiated(point, "persistent") == 1;
  const bool copies = !persistent && point.back.at("data-path") == "copy";
  // With persistent grants the cache holds up to its cap, and a full ring beyond the cap is mapped on top of it.
  const std::uint64_t cap = number(point.back, "max-persistent-grants");
  const std::uint64_t beyond_cap = per_ring > cap ? per_ring : 0;
  const std::uint64_t mapped = persistent ? std::min(cap, per_ring) + beyond_cap : copies ? 0 : per_ring;

  Capacity out;
  out.guest_grants = queues * (ring.pages + per_ring);
  out.guest_memory = Bytes(out.guest_grants * kPageSize);
  out.host_mappings = point.guests * queues * (ring.pages + mapped);
  return out;
}

std::optional<std::string> capacity_warning(const Capacity& capacity, std::uint64_t max_map_count) {
  std::string out;
  if (capacity.guest_grants > kGrantTableEntries) {
    out = "a guest may need " + std::to_string(capacity.guest_grants) + " grants, its grant table has " +
          std::to_string(kGrantTableEntries) + ": lower queues, ring-page-order or indirect-segments";
  }
  if (capacity.host_mappings > max_map_count) {
    if (!out.empty()) out += '\n';
    out += "the host may need " + std::to_string(capacity.host_mappings) + " mappings, vm.max_map_count is " +
           std::to_string(max_map_count) + ": beyond it grants are not kept mapped; raise it with " +
           "'sysctl vm.max_map_count=" + std::to_string(2 * capacity.host_mappings) + "'";
  }
  if (out.empty()) return std::nullopt;
  return out;
}

}  // namespace xblk::plan
