// From a private copy of a slot to a request that is safe to execute, and back.
//
// The backend calls, in this order: parse_request() on the slot; for an indirect request decode_indirect_page() on a
// private copy of its segment page and validate_segments() on the result. Everything a hostile frontend can write into
// a request is refused in these three; what passes needs no further check against the device.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include <tl/expected.hpp>

#include "drivers/base/units.hpp"
#include "drivers/blkif/wire.hpp"

namespace xblk::blkif {

// Sectors first..last, inclusive, of one granted page. Laid out as on the wire, so that an array decodes by one copy.
struct Segment {
  GrantRef gref{};
  std::uint8_t first_sector = 0;
  std::uint8_t last_sector = 0;

  [[nodiscard]] constexpr std::uint32_t sectors() const { return 1u + last_sector - first_sector; }
  friend bool operator==(const Segment&, const Segment&) = default;
};
static_assert(sizeof(Segment) == kWireSegmentSize);

// Which fields mean anything depends on the operation:
//   read, write, write_barrier  sector, segment_count, and segments (direct) or indirect_grefs (indirect)
//   flush_diskcache             none
//   discard                     sector, discard_sectors, discard_secure
struct Request {
  std::uint64_t id = 0;
  Op op = Op::read;  // of an indirect request: the inner operation, read or write
  bool indirect = false;
  bool discard_secure = false;
  std::uint8_t indirect_page_count = 0;
  std::uint16_t handle = 0;
  std::uint16_t segment_count = 0;
  Sectors sector{};
  Sectors discard_sectors{};
  // Only the one that `indirect` names means anything, and of it only the first segment_count or indirect_page_count
  // entries; the rest is not cleared, which would cost as much as parsing a 4 KiB read.
  union {
    std::array<Segment, kDirectSegmentsMax> segments;
    std::array<GrantRef, kIndirectPagesMax> indirect_grefs;
  };

  Request() {}  // not "= default": the union stays as it is

  [[nodiscard]] std::span<const Segment> direct_segments() const { return std::span(segments).first(segment_count); }
};

// What the backend offered to this frontend, and what it must hold requests against.
struct DeviceLimits {
  Sectors capacity{};
  std::uint32_t sector_size = kSectorSize;  // bytes, a power of two >= 512
  bool readonly = false;
  bool flush = false;
  bool barrier = false;
  bool discard = false;
  bool discard_secure = false;
  std::uint16_t indirect_segments_max = 0;  // 0: not offered
};

// Why a request is refused. Each class costs the frontend one failed response and the backend nothing.
enum class Malformed : std::uint8_t {
  bad_operation,            // not a BLKIF_OP_* for the ring
  not_supported,            // a known operation that this device does not offer
  segment_count_zero,       // read or write of nothing
  segment_count_too_large,  // more than 11, or a flush with segments
  indirect_not_offered,     // no feature-max-indirect-segments
  indirect_operation,       // inner operation other than read and write
  indirect_segment_count,   // zero, or more than offered
  segment_range,            // last sector before the first, or outside the page
  out_of_range,             // beyond the end of the device, also by overflow of sector + length
  misaligned,               // offset or length not a multiple of the device's sector-size
  readonly,                 // write to a read-only device
  discard_on_readonly,      // discard destroys data too (CVE-2013-2140)
  discard_length_zero,      // discard of nothing
};
inline constexpr std::size_t kMalformedCount = 13;

std::string_view to_string(Malformed why);
// BLKIF_RSP_EOPNOTSUPP lets a frontend stop using a feature; everything else is BLKIF_RSP_ERROR.
ResponseStatus response_for(Malformed why);

// For the response, whether or not the request is well-formed. An indirect request is answered with its inner
// operation: Linux blkfront compares it with the operation it meant.
inline std::uint64_t request_id(Abi abi, const RawRequest& raw) {
  return load<std::uint64_t>(raw.bytes.data() + tail_offset(abi) + tail::kId);
}
inline Op request_response_op(const RawRequest& raw) {
  const auto op = load<Op>(raw.bytes.data() + head::kOperation);
  return op == Op::indirect ? load<Op>(raw.bytes.data() + head::kIndirectOperation) : op;
}

// Everything that needs no segment page: a direct request or a discard is fully validated, an indirect one up to its
// segments.
tl::expected<Request, Malformed> parse_request(Abi abi, const RawRequest& raw, const DeviceLimits& limits);

constexpr std::size_t indirect_pages(std::size_t segment_count) {
  return (segment_count + kSegmentsPerIndirectPage - 1) / kSegmentsPerIndirectPage;
}

// The first out.size() segments of one indirect page, of which the caller made a private copy.
void decode_indirect_page(std::span<const std::byte, kPageSize> private_copy, std::span<Segment> out);

// Each segment inside its page and aligned, the whole inside the device.
std::optional<Malformed> validate_segments(const Request& request, std::span<const Segment> segments,
                                           const DeviceLimits& limits);

// Sum of the segments' lengths.
Sectors transfer_length(std::span<const Segment> segments);

// The frontend's side. `segments` are the request's: stored in a direct request; of an indirect request only counted,
// as they travel in pages filled by encode_indirect_page(). Unused bytes are zero: the backend sees the whole slot.
RawRequest encode_request(Abi abi, const Request& request, std::span<const Segment> segments);
// Up to 512 segments from the start of a page; the rest of the page stays as it is.
void encode_indirect_page(std::span<const Segment> segments, std::span<std::byte, kPageSize> page);

}  // namespace xblk::blkif
