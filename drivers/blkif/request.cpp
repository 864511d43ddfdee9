#include "drivers/blkif/request.hpp"

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "drivers/base/check.hpp"

namespace xblk::blkif {
namespace {

static_assert(offsetof(Segment, gref) == 0 && offsetof(Segment, first_sector) == 4 &&
              offsetof(Segment, last_sector) == 5);

constexpr std::uint64_t alignment_mask(const DeviceLimits& limits) {
  return limits.sector_size / kSectorSize - 1;
}

// Without computing sector + length, which may overflow.
constexpr bool inside(Sectors sector, Sectors length, Sectors capacity) {
  return length <= capacity && sector <= capacity - length;
}

constexpr bool is_write(Op op) {
  return op == Op::write || op == Op::write_barrier;
}

std::optional<Malformed> check_direct_header(Op op, unsigned segment_count, const DeviceLimits& limits) {
  if (op == Op::flush_diskcache) {
    if (!limits.flush) return Malformed::not_supported;
    // Nobody sends a flush with data; executing half of one would lose it.
    if (segment_count != 0) return Malformed::segment_count_too_large;
    return std::nullopt;
  }
  if (op == Op::write_barrier && !limits.barrier) return Malformed::not_supported;
  if (segment_count > kDirectSegmentsMax) return Malformed::segment_count_too_large;
  if (segment_count == 0) {
    // An empty barrier only orders and flushes; older frontends use it in place of a flush.
    if (op == Op::write_barrier) return std::nullopt;
    return Malformed::segment_count_zero;
  }
  if (limits.readonly && is_write(op)) return Malformed::readonly;
  return std::nullopt;
}

std::optional<Malformed> parse_direct(const std::byte* raw, const std::byte* tail, const DeviceLimits& limits,
                                      Request& request) {
  request.segment_count = load<std::uint8_t>(raw + head::kSegmentCount);
  request.handle = load<std::uint16_t>(raw + head::kHandle);
  if (const auto why = check_direct_header(request.op, request.segment_count, limits)) return why;
  if (request.segment_count == 0) return std::nullopt;
  // All eleven, whatever the count: a copy of constant size costs a few moves, one of variable size a call.
  std::memcpy(&request.segments, tail + tail::kSegments, sizeof request.segments);
  return validate_segments(request, request.direct_segments(), limits);
}

std::optional<Malformed> parse_indirect(const std::byte* raw, const std::byte* tail, const DeviceLimits& limits,
                                        Request& request) {
  if (limits.indirect_segments_max == 0) return Malformed::indirect_not_offered;
  request.op = load<Op>(raw + head::kIndirectOperation);
  if (request.op != Op::read && request.op != Op::write) return Malformed::indirect_operation;
  request.segment_count = load<std::uint16_t>(raw + head::kIndirectSegmentCount);
  const auto most = std::min(limits.indirect_segments_max, kIndirectSegmentsMax);
  if (request.segment_count == 0 || request.segment_count > most) return Malformed::indirect_segment_count;
  if (limits.readonly && is_write(request.op)) return Malformed::readonly;
  request.indirect = true;
  request.handle = load<std::uint16_t>(tail + tail::kIndirectHandle);
  request.indirect_page_count = static_cast<std::uint8_t>(indirect_pages(request.segment_count));
  std::memcpy(&request.indirect_grefs, tail + tail::kIndirectGrefs, sizeof request.indirect_grefs);
  return std::nullopt;
}

std::optional<Malformed> parse_discard(const std::byte* raw, const std::byte* tail, const DeviceLimits& limits,
                                       Request& request) {
  if (!limits.discard) return Malformed::not_supported;
  if (limits.readonly) return Malformed::discard_on_readonly;
  request.handle = load<std::uint16_t>(raw + head::kHandle);
  request.discard_sectors = load<Sectors>(tail + tail::kDiscardSectors);
  // blkif.h: the flag is ignored if discard-secure=0.
  const auto flag = load<std::uint8_t>(raw + head::kDiscardFlag);
  request.discard_secure = limits.discard_secure && (flag & kDiscardSecureFlag) != 0;
  if (request.discard_sectors == Sectors(0)) return Malformed::discard_length_zero;
  if (((request.sector.value() | request.discard_sectors.value()) & alignment_mask(limits)) != 0) {
    return Malformed::misaligned;
  }
  if (!inside(request.sector, request.discard_sectors, limits.capacity)) return Malformed::out_of_range;
  return std::nullopt;
}

std::optional<Malformed> parse_body(const std::byte* raw, const std::byte* tail, const DeviceLimits& limits,
                                    Request& request) {
  switch (request.op) {
    case Op::read:
    case Op::write:
    case Op::write_barrier:
    case Op::flush_diskcache:
      return parse_direct(raw, tail, limits, request);
    case Op::discard:
      return parse_discard(raw, tail, limits, request);
    case Op::indirect:
      return parse_indirect(raw, tail, limits, request);
  }
  return Malformed::bad_operation;
}

// Field by field: the padding of Segment may hold anything, and must not leave the process.
void encode_segment(const Segment& segment, std::byte* at) {
  store(at, std::uint64_t{segment.gref.value()} | std::uint64_t{segment.first_sector} << 32 |
                std::uint64_t{segment.last_sector} << 40);
}

}  // namespace

tl::expected<Request, Malformed> parse_request(Abi abi, const RawRequest& raw, const DeviceLimits& limits) {
  const std::byte* bytes = raw.bytes.data();
  const std::byte* tail = bytes + tail_offset(abi);
  tl::expected<Request, Malformed> result;  // built where the caller wants it, hence the single return
  result->op = load<Op>(bytes + head::kOperation);
  result->id = load<std::uint64_t>(tail + tail::kId);
  result->sector = load<Sectors>(tail + tail::kSector);
  if (const auto why = parse_body(bytes, tail, limits, *result)) result = tl::make_unexpected(*why);
  return result;
}

void decode_indirect_page(std::span<const std::byte, kPageSize> private_copy, std::span<Segment> out) {
  XBLK_CHECK(out.size() <= kSegmentsPerIndirectPage, "an indirect page holds 512 segments");
  std::memcpy(out.data(), private_copy.data(), out.size_bytes());
}

std::optional<Malformed> validate_segments(const Request& request, std::span<const Segment> segments,
                                           const DeviceLimits& limits) {
  XBLK_CHECK(segments.size() == request.segment_count, "validate all segments of the request at once");
  const std::uint64_t mask = alignment_mask(limits);
  std::uint64_t length = 0;
  std::uint64_t edges = request.sector.value();  // every offset and end; their low bits must be clear
  for (const Segment& segment : segments) {
    if (segment.last_sector < segment.first_sector || segment.last_sector >= kSectorsPerPage) {
      return Malformed::segment_range;
    }
    length += segment.sectors();
    edges |= segment.first_sector | (segment.last_sector + 1u);
  }
  if ((edges & mask) != 0) return Malformed::misaligned;
  if (!inside(request.sector, Sectors(length), limits.capacity)) return Malformed::out_of_range;
  return std::nullopt;
}

Sectors transfer_length(std::span<const Segment> segments) {
  std::uint64_t length = 0;
  for (const Segment& segment : segments) length += segment.sectors();
  return Sectors(length);
}

RawRequest encode_request(Abi abi, const Request& request, std::span<const Segment> segments) {
  RawRequest raw{};
  std::byte* bytes = raw.bytes.data();
  std::byte* tail = bytes + tail_offset(abi);
  store(tail + tail::kId, request.id);
  store(tail + tail::kSector, request.sector);
  store(bytes + head::kOperation, request.indirect ? Op::indirect : request.op);
  if (request.indirect) {
    XBLK_CHECK(segments.size() == request.segment_count && request.segment_count <= kIndirectSegmentsMax &&
                   request.indirect_page_count == indirect_pages(request.segment_count),
               "an indirect request names all its segments and their pages");
    store(bytes + head::kIndirectOperation, request.op);
    store(bytes + head::kIndirectSegmentCount, request.segment_count);
    store(tail + tail::kIndirectHandle, request.handle);
    std::memcpy(tail + tail::kIndirectGrefs, &request.indirect_grefs, request.indirect_page_count * sizeof(GrantRef));
    return raw;
  }
  store(bytes + head::kHandle, request.handle);
  if (request.op == Op::discard) {
    store(bytes + head::kDiscardFlag, request.discard_secure ? kDiscardSecureFlag : std::uint8_t{0});
    store(tail + tail::kDiscardSectors, request.discard_sectors);
    return raw;
  }
  XBLK_CHECK(segments.size() == request.segment_count && segments.size() <= kDirectSegmentsMax,
             "a direct request carries up to 11 segments");
  store(bytes + head::kSegmentCount, static_cast<std::uint8_t>(segments.size()));
  for (std::size_t i = 0; i < segments.size(); ++i) {
    encode_segment(segments[i], tail + tail::kSegments + i * kWireSegmentSize);
  }
  return raw;
}

void encode_indirect_page(std::span<const Segment> segments, std::span<std::byte, kPageSize> page) {
  XBLK_CHECK(segments.size() <= kSegmentsPerIndirectPage, "an indirect page holds 512 segments");
  for (std::size_t i = 0; i < segments.size(); ++i) {
    encode_segment(segments[i], page.data() + i * kWireSegmentSize);
  }
}

std::string_view to_string(Malformed why) {
  switch (why) {
    case Malformed::bad_operation:
      return "bad_operation";
    case Malformed::not_supported:
      return "not_supported";
    case Malformed::segment_count_zero:
      return "segment_count_zero";
    case Malformed::segment_count_too_large:
      return "segment_count_too_large";
    case Malformed::indirect_not_offered:
      return "indirect_not_offered";
    case Malformed::indirect_operation:
      return "indirect_operation";
    case Malformed::indirect_segment_count:
      return "indirect_segment_count";
    case Malformed::segment_range:
      return "segment_range";
    case Malformed::out_of_range:
      return "out_of_range";
    case Malformed::misaligned:
      return "misaligned";
    case Malformed::readonly:
      return "readonly";
    case Malformed::discard_on_readonly:
      return "discard_on_readonly";
    case Malformed::discard_length_zero:
      return "discard_length_zero";
  }
  XBLK_CHECK(false, "not a Malformed");
}

ResponseStatus response_for(Malformed why) {
  switch (why) {
    case Malformed::bad_operation:
    case Malformed::not_supported:
    case Malformed::indirect_not_offered:
      return ResponseStatus::not_supported;
    default:
      return ResponseStatus::error;
  }
}

}  // namespace xblk::blkif
