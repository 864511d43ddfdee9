#include "drivers/blkif/request.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "drivers/base/prng.hpp"

namespace xblk::blkif {
namespace {

constexpr Abi kForeignAbis[] = {Abi::x86_64, Abi::x86_32};
constexpr Sectors kCapacity(8192);

DeviceLimits full_limits() {
  DeviceLimits limits;
  limits.capacity = kCapacity;
  limits.flush = limits.barrier = limits.discard = limits.discard_secure = true;
  limits.indirect_segments_max = kIndirectSegmentsMax;
  return limits;
}

std::vector<Segment> whole_pages(std::size_t count) {
  std::vector<Segment> segments;
  for (std::size_t i = 0; i < count; ++i) segments.push_back({GrantRef(static_cast<std::uint32_t>(100 + i)), 0, 7});
  return segments;
}

Request direct(Op op, Sectors sector, std::size_t segment_count) {
  Request request;
  request.op = op;
  request.id = 0x8877665544332211;
  request.handle = 51712;
  request.sector = sector;
  request.segment_count = static_cast<std::uint16_t>(segment_count);
  return request;
}

Request indirect(Op op, Sectors sector, std::size_t segment_count) {
  Request request = direct(op, sector, segment_count);
  request.indirect = true;
  request.indirect_page_count = static_cast<std::uint8_t>(indirect_pages(segment_count));
  request.indirect_grefs[0] = GrantRef(77);
  return request;
}

Request discard(Sectors sector, Sectors length, bool secure = false) {
  Request request = direct(Op::discard, sector, 0);
  request.discard_sectors = length;
  request.discard_secure = secure;
  return request;
}

template <class T>
void poke(RawRequest& raw, std::size_t offset, T value) {
  store(raw.bytes.data() + offset, value);
}

// What the backend does with a slot and, for an indirect request, its one segment page.
std::optional<Malformed> verdict(Abi abi, const RawRequest& raw, const std::vector<Segment>& segments,
                                 const DeviceLimits& limits) {
  const auto request = parse_request(abi, raw, limits);
  if (!request) return request.error();
  if (!request->indirect) return std::nullopt;
  alignas(8) std::array<std::byte, kPageSize> page{};
  encode_indirect_page(segments, page);
  std::vector<Segment> decoded(request->segment_count);
  decode_indirect_page(page, decoded);
  return validate_segments(*request, decoded, limits);
}

class BothAbis : public testing::TestWithParam<Abi> {
 protected:
  [[nodiscard]] std::optional<Malformed> run(const Request& request, const std::vector<Segment>& segments = {}) const {
    return verdict(GetParam(), encode_request(GetParam(), request, segments), segments, limits_);
  }
  // The request with one byte or field overwritten as a hostile frontend would.
  template <class T>
  [[nodiscard]] std::optional<Malformed> run_poked(const Request& request, const std::vector<Segment>& segments,
                                                   std::size_t offset, T value) const {
    RawRequest raw = encode_request(GetParam(), request, segments);
    poke(raw, offset, value);
    return verdict(GetParam(), raw, segments, limits_);
  }
  [[nodiscard]] std::size_t tail_at(std::size_t offset) const { return tail_offset(GetParam()) + offset; }

  DeviceLimits limits_ = full_limits();
};
INSTANTIATE_TEST_SUITE_P(Abi, BothAbis, testing::ValuesIn(kForeignAbis),
                         [](const auto& test) { return test.param == Abi::x86_64 ? "x86_64" : "x86_32"; });

TEST_P(BothAbis, EveryDirectSegmentCountIsAcceptedUpToElevenOnly) {
  for (unsigned count = 0; count <= 255; ++count) {
    for (const Op op : {Op::read, Op::write, Op::write_barrier}) {
      RawRequest raw = encode_request(GetParam(), direct(op, Sectors(8), 11), whole_pages(11));
      poke(raw, head::kSegmentCount, static_cast<std::uint8_t>(count));
      const auto result = parse_request(GetParam(), raw, limits_);
      if (count > 11) {
        ASSERT_EQ(result.error(), Malformed::segment_count_too_large) << count;
      } else if (count == 0 && op != Op::write_barrier) {
        ASSERT_EQ(result.error(), Malformed::segment_count_zero);
      } else {
        ASSERT_TRUE(result) << count << ": " << to_string(result.error());
        EXPECT_EQ(result->segment_count, count);
        EXPECT_EQ(transfer_length(result->direct_segments()), Sectors(count * 8));
      }
    }
  }
}

TEST_P(BothAbis, EveryIndirectSegmentCountIsAcceptedUpToTheOfferOnly) {
  for (const std::uint16_t offered : {std::uint16_t{1}, std::uint16_t{32}, std::uint16_t{256}, std::uint16_t{65535}}) {
    limits_.indirect_segments_max = offered;
    const unsigned most = std::min(offered, kIndirectSegmentsMax);
    for (unsigned count = 0; count <= 65535; count += count < 600 ? 1 : 997) {
      RawRequest raw = encode_request(GetParam(), indirect(Op::read, Sectors(0), 1), whole_pages(1));
      poke(raw, head::kIndirectSegmentCount, static_cast<std::uint16_t>(count));
      const auto result = parse_request(GetParam(), raw, limits_);
      ASSERT_EQ(result.has_value(), count >= 1 && count <= most) << count << " of " << offered;
      if (!result) {
        EXPECT_EQ(result.error(), Malformed::indirect_segment_count);
      } else {
        EXPECT_EQ(result->indirect_page_count, 1);
        EXPECT_EQ(result->indirect_grefs[0], GrantRef(77));
      }
    }
  }
}

TEST_P(BothAbis, EveryOperationByteIsClassified) {
  for (unsigned op = 0; op <= 255; ++op) {
    const auto why =
        run_poked(direct(Op::write, Sectors(0), 1), whole_pages(1), head::kOperation, static_cast<std::uint8_t>(op));
    if (op == 4 || op > 6) {
      EXPECT_EQ(why, Malformed::bad_operation) << op;
    } else {
      EXPECT_NE(why, Malformed::bad_operation) << op;
    }
  }
}

TEST_P(BothAbis, NotOfferedIsNotSupported) {
  limits_.flush = limits_.barrier = limits_.discard = false;
  EXPECT_EQ(run(direct(Op::flush_diskcache, {}, 0)), Malformed::not_supported);
  EXPECT_EQ(run(direct(Op::write_barrier, {}, 0)), Malformed::not_supported);
  EXPECT_EQ(run(direct(Op::write_barrier, {}, 1), whole_pages(1)), Malformed::not_supported);
  EXPECT_EQ(run(discard(Sectors(0), Sectors(8))), Malformed::not_supported);
  limits_.indirect_segments_max = 0;
  EXPECT_EQ(run(indirect(Op::read, {}, 12), whole_pages(12)), Malformed::indirect_not_offered);
}

TEST_P(BothAbis, FlushIsEmptyAndAnEmptyBarrierIsAFlush) {
  EXPECT_EQ(run(direct(Op::flush_diskcache, Sectors(~0ull), 0)), std::nullopt) << "its sector means nothing";
  EXPECT_EQ(run(direct(Op::flush_diskcache, {}, 1), whole_pages(1)), Malformed::segment_count_too_large);
  EXPECT_EQ(run(direct(Op::write_barrier, Sectors(~0ull), 0)), std::nullopt);
  limits_.readonly = true;
  EXPECT_EQ(run(direct(Op::flush_diskcache, {}, 0)), std::nullopt);
  EXPECT_EQ(run(direct(Op::write_barrier, {}, 0)), std::nullopt);
}

TEST_P(BothAbis, EveryIndirectInnerOperationButReadAndWriteIsRefused) {
  for (unsigned inner = 0; inner <= 255; ++inner) {
    const auto why = run_poked(indirect(Op::read, Sectors(0), 12), whole_pages(12), head::kIndirectOperation,
                               static_cast<std::uint8_t>(inner));
    EXPECT_EQ(why, inner <= 1 ? std::nullopt : std::optional(Malformed::indirect_operation)) << inner;
  }
}

TEST_P(BothAbis, ReadonlyRefusesEveryWayToChangeData) {
  limits_.readonly = true;
  EXPECT_EQ(run(direct(Op::read, {}, 1), whole_pages(1)), std::nullopt);
  EXPECT_EQ(run(indirect(Op::read, {}, 12), whole_pages(12)), std::nullopt);
  EXPECT_EQ(run(direct(Op::write, {}, 1), whole_pages(1)), Malformed::readonly);
  EXPECT_EQ(run(direct(Op::write_barrier, {}, 1), whole_pages(1)), Malformed::readonly);
  EXPECT_EQ(run(indirect(Op::write, {}, 12), whole_pages(12)), Malformed::readonly);
  EXPECT_EQ(run(discard(Sectors(0), Sectors(8))), Malformed::discard_on_readonly);
}

// All 65,536 pairs of first and last sector, in the first and the last segment, direct and indirect.
TEST_P(BothAbis, EverySegmentRangeIsChecked) {
  for (unsigned first = 0; first <= 255; ++first) {
    for (unsigned last = 0; last <= 255; ++last) {
      const bool valid = first <= last && last < 8;
      const auto expected = valid ? std::nullopt : std::optional(Malformed::segment_range);
      const std::size_t position = (first ^ last) & 1 ? 10 : 0;
      auto segments = whole_pages(11);
      segments[position].first_sector = static_cast<std::uint8_t>(first);
      segments[position].last_sector = static_cast<std::uint8_t>(last);
      ASSERT_EQ(run(direct(Op::write, Sectors(16), 11), segments), expected) << first << ".." << last;
      ASSERT_EQ(run(indirect(Op::write, Sectors(16), 11), segments), expected) << first << ".." << last;
    }
  }
}

TEST_P(BothAbis, TheEndOfTheDeviceIsExactAndOverflowIsOutOfRange) {
  const std::uint64_t capacity = kCapacity.value();
  const struct {
    std::uint64_t sector;
    bool inside;
  } rows[] = {{0, true},           {capacity - 16, true}, {capacity - 15, false},
              {capacity, false},   {capacity + 1, false}, {~0ull - 15, false},
              {~0ull - 14, false}, {~0ull, false},        {1ull << 63, false}};
  for (const auto& row : rows) {
    const auto expected = row.inside ? std::nullopt : std::optional(Malformed::out_of_range);
    EXPECT_EQ(run(direct(Op::read, Sectors(row.sector), 2), whole_pages(2)), expected) << row.sector;
    EXPECT_EQ(run(direct(Op::write_barrier, Sectors(row.sector), 2), whole_pages(2)), expected) << row.sector;
    EXPECT_EQ(run(indirect(Op::write, Sectors(row.sector), 2), whole_pages(2)), expected) << row.sector;
    EXPECT_EQ(run(discard(Sectors(row.sector), Sectors(16))), expected) << row.sector;
  }
  for (const std::uint64_t length : {capacity + 1, ~0ul, ~0ul - 7, 1ul << 63}) {
    EXPECT_EQ(run(discard(Sectors(8), Sectors(length))), Malformed::out_of_range) << length;
  }
  EXPECT_EQ(run(discard(Sectors(0), kCapacity)), std::nullopt);
  limits_.capacity = Sectors(4);  // a device smaller than one segment
  EXPECT_EQ(run(direct(Op::read, Sectors(0), 1), whole_pages(1)), Malformed::out_of_range);
}

// blkif.h: units stay 512 bytes on a 4 KiB device, but every offset and length is a multiple of sector-size.
TEST_P(BothAbis, MisalignedOn4KAndFineOn512) {
  const auto half = [](std::uint8_t first, std::uint8_t last) {
    auto segments = whole_pages(2);
    segments[1] = {GrantRef(1), first, last};
    return segments;
  };
  for (const bool large : {false, true}) {
    limits_.sector_size = large ? 4096 : 512;
    const auto expected = large ? std::optional(Malformed::misaligned) : std::nullopt;
    EXPECT_EQ(run(direct(Op::read, Sectors(8), 2), whole_pages(2)), std::nullopt);
    EXPECT_EQ(run(direct(Op::read, Sectors(9), 2), whole_pages(2)), expected);
    EXPECT_EQ(run(direct(Op::write, Sectors(8), 2), half(0, 3)), expected);
    EXPECT_EQ(run(direct(Op::write, Sectors(8), 2), half(4, 7)), expected);
    EXPECT_EQ(run(indirect(Op::read, Sectors(12), 2), whole_pages(2)), expected);
    EXPECT_EQ(run(indirect(Op::read, Sectors(8), 2), half(1, 7)), expected);
    EXPECT_EQ(run(discard(Sectors(4), Sectors(8))), expected);
    EXPECT_EQ(run(discard(Sectors(8), Sectors(4))), expected);
    EXPECT_EQ(run(discard(Sectors(8), Sectors(8))), std::nullopt);
  }
  limits_.sector_size = 2048;
  EXPECT_EQ(run(direct(Op::write, Sectors(4), 2), half(4, 7)), std::nullopt);
  EXPECT_EQ(run(direct(Op::write, Sectors(4), 2), half(2, 5)), Malformed::misaligned);
}

TEST_P(BothAbis, DiscardOfNothingIsRefusedAndSecureNeedsTheOffer) {
  EXPECT_EQ(run(discard(Sectors(8), Sectors(0))), Malformed::discard_length_zero);
  const RawRequest raw = encode_request(GetParam(), discard(Sectors(8), Sectors(16), true), {});
  auto request = parse_request(GetParam(), raw, limits_);
  ASSERT_TRUE(request);
  EXPECT_TRUE(request->discard_secure);
  EXPECT_EQ(request->discard_sectors, Sectors(16));
  limits_.discard_secure = false;
  request = parse_request(GetParam(), raw, limits_);
  ASSERT_TRUE(request) << "blkif.h: the flag is ignored, not an error";
  EXPECT_FALSE(request->discard_secure);
}

TEST_P(BothAbis, IdAndOperationAreKnownForAnyBytes) {
  constexpr std::uint64_t kSeed = 11;
  Prng random(kSeed);
  SCOPED_TRACE(testing::Message() << "seed " << kSeed);
  for (int i = 0; i < 10000; ++i) {
    RawRequest raw;
    for (auto& byte : raw.bytes) byte = static_cast<std::byte>(random.next());
    if (random.one_in(2)) poke(raw, head::kOperation, static_cast<std::uint8_t>(random.below(8)));
    EXPECT_EQ(request_id(GetParam(), raw), load<std::uint64_t>(raw.bytes.data() + tail_at(tail::kId)));
    const auto request = parse_request(GetParam(), raw, limits_);
    if (request) {
      EXPECT_EQ(request->id, request_id(GetParam(), raw));
      EXPECT_EQ(request->op, request_response_op(raw));
    }
  }
  const RawRequest raw = encode_request(GetParam(), indirect(Op::write, {}, 12), whole_pages(12));
  EXPECT_EQ(request_response_op(raw), Op::write) << "an indirect request is answered with its inner operation";
}

bool same(const Request& a, const Request& b) {
  return a.id == b.id && a.op == b.op && a.indirect == b.indirect && a.handle == b.handle && a.sector == b.sector &&
         a.segment_count == b.segment_count && a.discard_sectors == b.discard_sectors &&
         a.discard_secure == b.discard_secure && a.indirect_page_count == b.indirect_page_count &&
         std::equal(a.indirect_grefs.begin(), a.indirect_grefs.begin() + a.indirect_page_count,
                    b.indirect_grefs.begin());
}

// A random valid request and its segments.
Request random_request(Prng& random, std::vector<Segment>& segments) {
  constexpr Op kOps[] = {Op::read, Op::write, Op::write_barrier, Op::flush_diskcache, Op::discard};
  const Op op = kOps[random.below(std::size(kOps))];
  const bool is_indirect = (op == Op::read || op == Op::write) && random.one_in(2);
  segments.clear();
  if (op == Op::discard || op == Op::flush_diskcache) {
    Request request = op == Op::discard
                          ? discard(Sectors(random.below(4096)), Sectors(1 + random.below(4096)), random.one_in(2))
                          : direct(op, Sectors(random.below(4096)), 0);
    request.id = random.next();
    request.handle = static_cast<std::uint16_t>(random.next());
    return request;
  }
  const std::size_t count = 1 + random.below(is_indirect ? kIndirectSegmentsMax : kDirectSegmentsMax);
  for (std::size_t i = 0; i < count; ++i) {
    const auto first = static_cast<std::uint8_t>(random.below(8));
    const auto last = static_cast<std::uint8_t>(first + random.below(8 - first));
    segments.push_back({GrantRef(static_cast<std::uint32_t>(random.next())), first, last});
  }
  const Sectors sector(random.below(kCapacity.value() - transfer_length(segments).value() + 1));
  Request request = is_indirect ? indirect(op, sector, count) : direct(op, sector, count);
  if (is_indirect) request.indirect_grefs[0] = GrantRef(static_cast<std::uint32_t>(random.next()));
  request.id = random.next();
  request.handle = static_cast<std::uint16_t>(random.next());
  return request;
}

TEST_P(BothAbis, RandomRequestsRoundTrip) {
  constexpr std::uint64_t kSeed = 20240912;
  Prng random(kSeed);
  SCOPED_TRACE(testing::Message() << "seed " << kSeed);
  std::vector<Segment> segments;
  for (int i = 0; i < 20000; ++i) {
    const Request sent = random_request(random, segments);
    const RawRequest raw = encode_request(GetParam(), sent, segments);
    const auto received = parse_request(GetParam(), raw, limits_);
    ASSERT_TRUE(received) << "round " << i << ": " << to_string(received.error());
    ASSERT_TRUE(same(sent, *received)) << "round " << i;
    std::vector<Segment> decoded(received->segment_count);
    if (received->indirect) {
      alignas(8) std::array<std::byte, kPageSize> page{};
      encode_indirect_page(segments, page);
      decode_indirect_page(page, decoded);
      EXPECT_EQ(validate_segments(*received, decoded, limits_), std::nullopt) << "round " << i;
    } else {
      std::ranges::copy(received->direct_segments(), decoded.begin());
    }
    ASSERT_EQ(decoded, segments) << "round " << i;
  }
}

// The same request, a Segment array with dirty padding: no byte of it may reach the wire.
TEST_P(BothAbis, EncodedRequestsCarryNoStrayBytes) {
  alignas(Segment) std::array<std::byte, 11 * sizeof(Segment)> dirty;
  dirty.fill(std::byte{0xaa});
  auto* segments = reinterpret_cast<Segment*>(dirty.data());
  for (std::size_t i = 0; i < 11; ++i) {
    segments[i].gref = GrantRef(0);
    segments[i].first_sector = segments[i].last_sector = 0;
  }
  Request request = direct(Op::read, {}, 11);
  request.id = 0;
  request.handle = 0;
  const RawRequest raw = encode_request(GetParam(), request, std::span(segments, 11));
  for (std::size_t i = 0; i < raw.bytes.size(); ++i) {
    EXPECT_EQ(raw.bytes[i], i == head::kSegmentCount ? std::byte{11} : std::byte{0}) << "byte " << i;
  }
  alignas(8) std::array<std::byte, kPageSize> page{};
  encode_indirect_page(std::span(segments, 11), page);
  EXPECT_TRUE(std::ranges::all_of(page, [](std::byte b) { return b == std::byte{0}; }));
}

// The layouts are told apart: the same bytes read with the wrong ABI give another id.
TEST(Abis, Differ) {
  const auto segments = whole_pages(3);
  const RawRequest raw = encode_request(Abi::x86_32, direct(Op::read, Sectors(8), 3), segments);
  EXPECT_NE(request_id(Abi::x86_64, raw), request_id(Abi::x86_32, raw));
  EXPECT_TRUE(std::all_of(raw.bytes.begin() + 108, raw.bytes.end(), [](std::byte b) { return b == std::byte{0}; }));
}

TEST(Malformed, EveryClassHasAnOwnNameAndAFailure) {
  std::vector<std::string_view> names;
  for (std::size_t i = 0; i < kMalformedCount; ++i) {
    const auto why = static_cast<Malformed>(i);
    names.push_back(to_string(why));
    EXPECT_NE(response_for(why), ResponseStatus::okay) << to_string(why);
  }
  std::ranges::sort(names);
  EXPECT_EQ(std::ranges::adjacent_find(names), names.end());
  // A frontend turns a feature off at EOPNOTSUPP: only for what is not there, never for one bad request.
  EXPECT_EQ(response_for(Malformed::not_supported), ResponseStatus::not_supported);
  EXPECT_EQ(response_for(Malformed::bad_operation), ResponseStatus::not_supported);
  EXPECT_EQ(response_for(Malformed::indirect_not_offered), ResponseStatus::not_supported);
  EXPECT_EQ(response_for(Malformed::out_of_range), ResponseStatus::error);
  EXPECT_EQ(response_for(Malformed::discard_on_readonly), ResponseStatus::error);
}

TEST(IndirectPages, AreRoundedUpAt512Segments) {
  EXPECT_EQ(indirect_pages(1), 1u);
  EXPECT_EQ(indirect_pages(512), 1u);
  EXPECT_EQ(indirect_pages(513), 2u);
  EXPECT_EQ(indirect_pages(4096), kIndirectPagesMax);
}

TEST(RequestDeathTest, AFrontendBugIsCaughtBeforeItReachesTheRing) {
  EXPECT_DEATH(encode_request(kNativeAbi, direct(Op::read, {}, 12), whole_pages(12)), "up to 11 segments");
  EXPECT_DEATH(encode_request(kNativeAbi, direct(Op::read, {}, 2), whole_pages(1)), "up to 11 segments");
  EXPECT_DEATH(encode_request(kNativeAbi, indirect(Op::read, {}, 12), whole_pages(11)), "all its segments");
  std::vector<Segment> too_many(513);
  alignas(8) static std::array<std::byte, kPageSize> page{};
  EXPECT_DEATH(decode_indirect_page(page, too_many), "512 segments");
}

}  // namespace
}  // namespace xblk::blkif
