// Arbitrary bytes as a slot and its segment page: whatever is accepted must be safe to execute.
#include <algorithm>
#include <array>
#include <cstring>
#include <span>
#include <vector>

#include "drivers/base/check.hpp"
#include "drivers/blkif/request.hpp"

namespace xblk::blkif {
namespace {

// Input: one byte of switches, 112 bytes of slot, then the start of the segment page.
constexpr std::size_t kSlotAt = 1;
constexpr std::size_t kPageAt = kSlotAt + sizeof(RawRequest);

DeviceLimits limits_from(unsigned switches) {
  DeviceLimits limits;
  limits.capacity = Sectors(4096);
  limits.sector_size = (switches & 2) != 0 ? 4096 : 512;
  limits.readonly = (switches & 4) != 0;
  limits.flush = limits.barrier = (switches & 8) == 0;
  limits.discard = (switches & 16) == 0;
  limits.discard_secure = (switches & 32) == 0;
  limits.indirect_segments_max = (switches & 64) != 0 ? 0 : 256;
  return limits;
}

void check_segments(const Request& request, std::span<const Segment> segments, const DeviceLimits& limits) {
  for (const Segment& segment : segments) {
    XBLK_CHECK(segment.first_sector <= segment.last_sector && segment.last_sector < kSectorsPerPage,
               "a segment lies in its page");
  }
  const Sectors length = transfer_length(segments);
  XBLK_CHECK(segments.empty() || request.sector + length <= limits.capacity, "a transfer lies on the device");
  XBLK_CHECK(segments.empty() || request.sector + length >= request.sector, "its end does not wrap");
  XBLK_CHECK(segments.empty() || to_bytes(length).value() % limits.sector_size == 0, "it is of whole blocks");
}

void run(std::span<const std::uint8_t> input) {
  if (input.size() < kPageAt) return;
  const Abi abi = (input[0] & 1) != 0 ? Abi::x86_32 : Abi::x86_64;
  const DeviceLimits limits = limits_from(input[0]);
  RawRequest raw;
  std::memcpy(raw.bytes.data(), &input[kSlotAt], sizeof raw.bytes);
  const auto request = parse_request(abi, raw, limits);
  if (!request) {
    XBLK_CHECK(response_for(request.error()) != ResponseStatus::okay && !to_string(request.error()).empty(),
               "a refusal has a name and a status");
    return;
  }
  XBLK_CHECK(request->id == request_id(abi, raw) && request->op == request_response_op(raw), "the response's fields");
  const bool changes_data = request->op == Op::discard || request->op == Op::write ||
                            (request->op == Op::write_barrier && request->segment_count > 0);
  XBLK_CHECK(!limits.readonly || !changes_data, "a read-only device is not written");
  if (request->op == Op::discard) {
    XBLK_CHECK(
        request->discard_sectors <= limits.capacity && request->sector <= limits.capacity - request->discard_sectors,
        "a discard lies on the device");
  } else if (request->indirect) {
    XBLK_CHECK(request->segment_count <= limits.indirect_segments_max, "no more segments than offered");
    alignas(8) std::array<std::byte, kPageSize> page{};
    const auto rest = input.subspan(kPageAt);
    std::memcpy(page.data(), rest.data(), std::min(rest.size(), page.size()));
    std::vector<Segment> segments(request->segment_count);
    decode_indirect_page(page, segments);
    if (!validate_segments(*request, segments, limits)) check_segments(*request, segments, limits);
  } else {
    check_segments(*request, request->direct_segments(), limits);
  }
}

}  // namespace
}  // namespace xblk::blkif

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  xblk::blkif::run({data, size});
  return 0;
}
