#include "drivers/blkif/wire.hpp"

#include <gtest/gtest.h>
#include <sys/types.h>

// The spec itself, as this compiler lays it out: the native ABI.
#include <xen/xen.h>

#include <xen/io/blkif.h>
#include <xen/io/protocols.h>

#include <algorithm>

#include "drivers/base/prng.hpp"
#include "drivers/blkif/ring_layout.hpp"

namespace xblk::blkif {
namespace {

constexpr std::size_t kTail = tail_offset(kNativeAbi);

static_assert(sizeof(blkif_request) == request_slot_size(kNativeAbi));
static_assert(sizeof(blkif_response) == response_size(kNativeAbi));
static_assert(sizeof(blkif_sring_entry) == slot_size(kNativeAbi));
static_assert(sizeof(blkif_request_segment) == kWireSegmentSize);
static_assert(BLKIF_MAX_SEGMENTS_PER_REQUEST == kDirectSegmentsMax);
static_assert(BLKIF_MAX_INDIRECT_PAGES_PER_REQUEST == kIndirectPagesMax);
static_assert(BLKIF_DISCARD_SECURE == kDiscardSecureFlag);

static_assert(offsetof(blkif_request, operation) == head::kOperation);
static_assert(offsetof(blkif_request, nr_segments) == head::kSegmentCount);
static_assert(offsetof(blkif_request, handle) == head::kHandle);
static_assert(offsetof(blkif_request, id) == kTail + tail::kId);
static_assert(offsetof(blkif_request, sector_number) == kTail + tail::kSector);
static_assert(offsetof(blkif_request, seg) == kTail + tail::kSegments);

static_assert(offsetof(blkif_request_discard, flag) == head::kDiscardFlag);
static_assert(offsetof(blkif_request_discard, id) == kTail + tail::kId);
static_assert(offsetof(blkif_request_discard, nr_sectors) == kTail + tail::kDiscardSectors);

static_assert(offsetof(blkif_request_indirect, indirect_op) == head::kIndirectOperation);
static_assert(offsetof(blkif_request_indirect, nr_segments) == head::kIndirectSegmentCount);
static_assert(offsetof(blkif_request_indirect, id) == kTail + tail::kId);
static_assert(offsetof(blkif_request_indirect, sector_number) == kTail + tail::kSector);
static_assert(offsetof(blkif_request_indirect, handle) == kTail + tail::kIndirectHandle);
static_assert(offsetof(blkif_request_indirect, indirect_grefs) == kTail + tail::kIndirectGrefs);

static_assert(BLKIF_OP_READ == static_cast<int>(Op::read) && BLKIF_OP_WRITE == static_cast<int>(Op::write));
static_assert(BLKIF_OP_WRITE_BARRIER == static_cast<int>(Op::write_barrier));
static_assert(BLKIF_OP_FLUSH_DISKCACHE == static_cast<int>(Op::flush_diskcache));
static_assert(BLKIF_OP_DISCARD == static_cast<int>(Op::discard) && BLKIF_OP_INDIRECT == static_cast<int>(Op::indirect));
static_assert(BLKIF_RSP_OKAY == static_cast<int>(ResponseStatus::okay));
static_assert(BLKIF_RSP_ERROR == static_cast<int>(ResponseStatus::error));
static_assert(BLKIF_RSP_EOPNOTSUPP == static_cast<int>(ResponseStatus::not_supported));

// The i386 layout: the spec's structures with uint64_t aligned to 4, as that compiler does.
#pragma pack(push, 4)
struct Request32 {
  std::uint8_t operation, nr_segments;
  std::uint16_t handle;
  std::uint64_t id, sector_number;
  struct {
    std::uint32_t gref;
    std::uint8_t first_sect, last_sect;
  } seg[11];
};
struct Indirect32 {
  std::uint8_t operation, indirect_op;
  std::uint16_t nr_segments;
  std::uint64_t id, sector_number;
  std::uint16_t handle;
  std::uint32_t indirect_grefs[8];
  std::uint64_t pad;
};
struct Discard32 {
  std::uint8_t operation, flag;
  std::uint16_t handle;
  std::uint64_t id, sector_number, nr_sectors;
};
struct Response32 {
  std::uint64_t id;
  std::uint8_t operation;
  std::int16_t status;
};
#pragma pack(pop)
constexpr std::size_t kTail32 = tail_offset(Abi::x86_32);
static_assert(sizeof(Request32) == request_slot_size(Abi::x86_32) && sizeof(Response32) == response_size(Abi::x86_32));
static_assert(sizeof(Indirect32) <= sizeof(Request32) && sizeof(Discard32) <= sizeof(Request32));
static_assert(offsetof(Request32, id) == kTail32 + tail::kId && offsetof(Request32, seg) == kTail32 + tail::kSegments);
static_assert(offsetof(Indirect32, handle) == kTail32 + tail::kIndirectHandle);
static_assert(offsetof(Indirect32, indirect_grefs) == kTail32 + tail::kIndirectGrefs);
static_assert(offsetof(Discard32, nr_sectors) == kTail32 + tail::kDiscardSectors);
static_assert(offsetof(Response32, operation) == offsetof(blkif_response, operation));
static_assert(offsetof(Response32, status) == offsetof(blkif_response, status));

TEST(Protocol, NamesAreThoseOfTheSpec) {
  EXPECT_EQ(kProtocolX86_64, XEN_IO_PROTO_ABI_X86_64);
  EXPECT_EQ(kProtocolX86_32, XEN_IO_PROTO_ABI_X86_32);
  EXPECT_EQ(protocol_name(kNativeAbi), XEN_IO_PROTO_ABI_NATIVE);
}

TEST(Protocol, KnownNamesParseAndMissingMeansX86_32) {
  for (const Abi abi : {Abi::x86_64, Abi::x86_32}) EXPECT_EQ(parse_protocol(protocol_name(abi)).value(), abi);
  EXPECT_EQ(parse_protocol(std::nullopt).value(), Abi::x86_32);
}

TEST(Protocol, JunkIsAnErrorThatShowsTheJunkOnOneLine) {
  for (const std::string_view junk : {"", "arm-abi", "x86_64-abi ", "X86_64-ABI", "x86_64-ab"}) {
    EXPECT_FALSE(parse_protocol(junk)) << junk;
  }
  const auto result = parse_protocol("bad\nkey");
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code, EPROTO);
  EXPECT_NE(result.error().message.find("\"bad\\x0akey\""), std::string::npos) << result.error().message;
  EXPECT_EQ(result.error().message.find('\n'), std::string::npos);
}

TEST(Response, EchoesAll64IdBitsAndEveryStatus) {
  constexpr std::uint64_t kSeed = 7;
  Prng random(kSeed);
  SCOPED_TRACE(testing::Message() << "seed " << kSeed);
  for (int i = 0; i < 1000; ++i) {
    const Response response{random.next(), static_cast<Op>(random.below(256)),
                            static_cast<ResponseStatus>(random.below(65536) - 32768)};
    EXPECT_EQ(decode_response(encode_response(response)), response);
  }
}

TEST(Response, MatchesTheSpecByteForByte) {
  blkif_response spec{};
  spec.id = 0xfedcba9876543210;
  spec.operation = BLKIF_OP_WRITE;
  spec.status = BLKIF_RSP_EOPNOTSUPP;
  const RawResponse raw = encode_response({spec.id, Op::write, ResponseStatus::not_supported});
  EXPECT_EQ(load<std::uint64_t>(raw.bytes.data() + offsetof(blkif_response, id)), spec.id);
  EXPECT_EQ(load<std::uint8_t>(raw.bytes.data() + offsetof(blkif_response, operation)), spec.operation);
  EXPECT_EQ(load<std::int16_t>(raw.bytes.data() + offsetof(blkif_response, status)), spec.status);
}

// Encoded over a stack full of a pattern, the padding (byte 9, bytes 12 to 15) is zero: XSA-216.
TEST(Response, PaddingCarriesNothing) {
  alignas(RawResponse) std::array<std::byte, sizeof(RawResponse)> dirty;
  dirty.fill(std::byte{0xaa});
  auto* raw = new (dirty.data()) RawResponse(encode_response({~0ull, Op::discard, ResponseStatus::error}));
  EXPECT_EQ(raw->bytes[9], std::byte{0});
  EXPECT_TRUE(std::all_of(raw->bytes.begin() + 12, raw->bytes.end(), [](std::byte b) { return b == std::byte{0}; }));
}

TEST(Names, EveryValueHasOneAndAnythingElseIsUnknown) {
  EXPECT_EQ(to_string(Op::flush_diskcache), "flush_diskcache");
  EXPECT_EQ(to_string(static_cast<Op>(4)), "unknown");
  EXPECT_EQ(to_string(ResponseStatus::not_supported), "not_supported");
  EXPECT_EQ(to_string(static_cast<ResponseStatus>(7)), "unknown");
}

}  // namespace
}  // namespace xblk::blkif
