// The bytes of one ring slot: operations, status codes, and where each field lies in each ABI (<xen/io/blkif.h>).
//
// blkif.h declares C structures whose layout depends on the guest's compiler: i386 aligns uint64_t to 4, x86-64 to 8.
// All three request forms (direct, discard, indirect) share a 4-byte head; from `id` on, the 32-bit layout is the
// 64-bit one moved down by 4. One offset per ABI therefore describes every form.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string_view>

#include "drivers/base/result.hpp"

namespace xblk::blkif {

static_assert(std::endian::native == std::endian::little,
              "the x86 ABIs are little-endian, and fields are loaded as is");

// The native ABI is an alias, not a third layout: xblk runs on x86-64 (protocols.h: XEN_IO_PROTO_ABI_NATIVE).
enum class Abi : std::uint8_t { x86_64, x86_32 };
inline constexpr Abi kNativeAbi = Abi::x86_64;

inline constexpr std::string_view kProtocolX86_64 = "x86_64-abi";
inline constexpr std::string_view kProtocolX86_32 = "x86_32-abi";

constexpr std::string_view protocol_name(Abi abi) {
  return abi == Abi::x86_64 ? kProtocolX86_64 : kProtocolX86_32;
}

// The frontend's `protocol` key. Missing means x86_32, although blkif.h says native: frontends older than the key are
// 32-bit ones, and Linux blkback, QEMU and tapdisk all read it so. An unknown protocol is an error, never a guess.
Result<Abi> parse_protocol(std::optional<std::string_view> key);

// BLKIF_OP_*. A value received from a peer may lie outside the list.
enum class Op : std::uint8_t { read = 0, write = 1, write_barrier = 2, flush_diskcache = 3, discard = 5, indirect = 6 };

// BLKIF_RSP_*. A value received from a peer may lie outside the list; everything but `okay` is a failure.
enum class ResponseStatus : std::int16_t { okay = 0, error = -1, not_supported = -2 };

std::string_view to_string(Op op);
std::string_view to_string(ResponseStatus status);

inline constexpr std::size_t kDirectSegmentsMax = 11;  // BLKIF_MAX_SEGMENTS_PER_REQUEST
inline constexpr std::size_t kIndirectPagesMax = 8;    // BLKIF_MAX_INDIRECT_PAGES_PER_REQUEST
inline constexpr std::size_t kWireSegmentSize = 8;     // sizeof(struct blkif_request_segment), both ABIs
inline constexpr std::size_t kSegmentsPerIndirectPage = 4096 / kWireSegmentSize;
inline constexpr std::uint16_t kIndirectSegmentsMax = 256;  // what our backend offers at most, as Linux blkback does
inline constexpr std::uint8_t kDiscardSecureFlag = 1;       // BLKIF_DISCARD_SECURE

// sizeof(struct blkif_request): the largest of the request forms.
constexpr std::size_t request_slot_size(Abi abi) {
  return abi == Abi::x86_64 ? 112 : 108;
}
// sizeof(struct blkif_response).
constexpr std::size_t response_size(Abi abi) {
  return abi == Abi::x86_64 ? 16 : 12;
}

// A PRIVATE copy of one request slot, fetched once from the shared ring (XSA-155: a field read twice may differ).
// Only the first request_slot_size() bytes count. Not initialised by default: the copy fills it.
struct RawRequest {
  alignas(8) std::array<std::byte, 112> bytes;
};
// One response, ready to be copied to its slot: response_size() bytes.
struct RawResponse {
  alignas(8) std::array<std::byte, 16> bytes;
};

// Offsets that both ABIs share, in the head of every request form.
namespace head {
inline constexpr std::size_t kOperation = 0;
inline constexpr std::size_t kSegmentCount = 1;          // direct: nr_segments (u8)
inline constexpr std::size_t kDiscardFlag = 1;           // discard: flag (u8)
inline constexpr std::size_t kIndirectOperation = 1;     // indirect: indirect_op (u8)
inline constexpr std::size_t kHandle = 2;                // direct, discard: handle (u16)
inline constexpr std::size_t kIndirectSegmentCount = 2;  // indirect: nr_segments (u16)
}  // namespace head

// Offsets from `id` on, relative to tail_offset().
namespace tail {
inline constexpr std::size_t kId = 0;
inline constexpr std::size_t kSector = 8;
inline constexpr std::size_t kSegments = 16;        // direct: seg[]
inline constexpr std::size_t kDiscardSectors = 16;  // discard: nr_sectors (u64)
inline constexpr std::size_t kIndirectHandle = 16;  // indirect: handle (u16)
inline constexpr std::size_t kIndirectGrefs = 20;   // indirect: indirect_grefs[] (u32 each)
}  // namespace tail

constexpr std::size_t tail_offset(Abi abi) {
  return abi == Abi::x86_64 ? 8 : 4;
}

// Unaligned load and store of one field.
template <class T>
T load(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}
template <class T>
void store(std::byte* at, T value) {
  std::memcpy(at, &value, sizeof value);
}

struct Response {
  std::uint64_t id = 0;  // all 64 bits are the frontend's own (Windows keeps a pointer there), also in the 32-bit ABI
  Op op = Op::read;      // request_response_op() of the request
  ResponseStatus status = ResponseStatus::okay;

  friend bool operator==(const Response&, const Response&) = default;
};

// Every byte is set, padding to zero: whatever lies on the backend's stack must not reach the guest (XSA-216).
inline RawResponse encode_response(const Response& response) {
  // struct blkif_response has the same offsets in both ABIs; i386 only lacks the last four bytes of padding.
  RawResponse raw{};
  store(raw.bytes.data(), response.id);
  store(raw.bytes.data() + 8, response.op);
  store(raw.bytes.data() + 10, response.status);
  return raw;
}

inline Response decode_response(const RawResponse& raw) {
  return {load<std::uint64_t>(raw.bytes.data()), load<Op>(raw.bytes.data() + 8),
          load<ResponseStatus>(raw.bytes.data() + 10)};
}

}  // namespace xblk::blkif
