// Cost of the wire on the hot path. Budget: 20 ns to parse a 4 KiB read, of an I/O that takes about a microsecond.
#include <benchmark/benchmark.h>

#include <vector>

#include "drivers/blkif/request.hpp"

namespace xblk::blkif {
namespace {

DeviceLimits limits() {
  DeviceLimits result;
  result.capacity = Sectors(1u << 30);
  result.flush = result.discard = true;
  result.indirect_segments_max = kIndirectSegmentsMax;
  return result;
}

std::vector<Segment> whole_pages(std::size_t count) {
  std::vector<Segment> segments;
  for (std::size_t i = 0; i < count; ++i) segments.push_back({GrantRef(static_cast<std::uint32_t>(8 + i)), 0, 7});
  return segments;
}

Request read_request(std::size_t segment_count) {
  Request request;
  request.op = Op::read;
  request.id = 42;
  request.sector = Sectors(4096);
  request.segment_count = static_cast<std::uint16_t>(segment_count);
  return request;
}

void parse_direct(benchmark::State& state, Abi abi) {
  const auto segments = whole_pages(static_cast<std::size_t>(state.range(0)));
  RawRequest raw = encode_request(abi, read_request(segments.size()), segments);
  const DeviceLimits device = limits();
  for (auto _ : state) {
    benchmark::DoNotOptimize(raw);
    auto request = parse_request(abi, raw, device);
    benchmark::DoNotOptimize(request);
  }
}
BENCHMARK_CAPTURE(parse_direct, native, kNativeAbi)->Arg(1)->Arg(11);
BENCHMARK_CAPTURE(parse_direct, x86_32, Abi::x86_32)->Arg(1)->Arg(11);

void decode_and_validate_indirect(benchmark::State& state) {
  const auto segments = whole_pages(static_cast<std::size_t>(state.range(0)));
  Request request = read_request(segments.size());
  request.indirect = true;
  alignas(8) std::array<std::byte, kPageSize> page{};
  encode_indirect_page(segments, page);
  std::vector<Segment> decoded(segments.size());
  const DeviceLimits device = limits();
  for (auto _ : state) {
    benchmark::DoNotOptimize(page);
    decode_indirect_page(page, decoded);
    auto why = validate_segments(request, decoded, device);
    benchmark::DoNotOptimize(why);
  }
}
BENCHMARK(decode_and_validate_indirect)->Arg(32)->Arg(256);

void encode_direct(benchmark::State& state) {
  const auto segments = whole_pages(static_cast<std::size_t>(state.range(0)));
  Request request = read_request(segments.size());
  for (auto _ : state) {
    benchmark::DoNotOptimize(request);
    auto raw = encode_request(kNativeAbi, request, segments);
    benchmark::DoNotOptimize(raw);
  }
}
BENCHMARK(encode_direct)->Arg(1)->Arg(11);

}  // namespace
}  // namespace xblk::blkif
