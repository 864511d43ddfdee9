// Frontends that attack the backend with what stands in a request: fields outside of their range, and operations that
// their device does not allow.
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "drivers/scenarios/hostile/attacked_ring_testing.hpp"
#include "drivers/scenarios/hostile/data_paths.hpp"

namespace xblk::scenarios {
namespace {

using blkif::Op;
using blkif::ResponseStatus;
using peer::Part;
using peer::front::Patch;
using peer::front::Push;
using peer::front::Put;
using peer::front::Turn;

constexpr Sectors kEnd{8192};

struct BadRequest {
  std::string what;
  peer::FrontScript script;  // one request
};

Put put(Op op, std::vector<Part> parts, Sectors sector = Sectors(0)) {
  return Put{.op = op, .sector = sector, .parts = std::move(parts)};
}
Put put_indirect(Op op, std::vector<Part> parts, Sectors sector = Sectors(0)) {
  return Put{.op = op, .sector = sector, .parts = std::move(parts), .indirect = true};
}
Put put_discard(Sectors sector, Sectors length) {
  return Put{.op = Op::discard, .sector = sector, .discard = length};
}
// 16 bits of the head of the request put last.
std::vector<peer::front::Operation> with_indirect_count(Put request, std::uint16_t count) {
  const auto low = static_cast<std::uint8_t>(count);
  const auto high = static_cast<std::uint8_t>(count >> 8);
  return {std::move(request), Patch{.offset = 2, .value = low}, Patch{.offset = 3, .value = high}};
}

std::vector<BadRequest> bad_requests() {
  const std::vector<Part> eleven(11);
  const std::vector<Part> many(32);
  const auto bad_part = [](Part part) {
    std::vector<Part> parts(12);
    parts[11] = part;
    return parts;
  };
  return {
      {"a read of nothing", {put(Op::read, {})}},
      {"a write of nothing", {put(Op::write, {})}},
      {"12 direct segments", {put(Op::read, eleven), Patch{.offset = 1, .value = 12}}},
      {"255 direct segments", {put(Op::write, eleven), Patch{.offset = 1, .value = 255}}},
      {"a flush with segments", {put(Op::flush_diskcache, {{0}})}},
      {"no such operation", {put(static_cast<Op>(77), {{0}})}},
      {"the operation that was never assigned", {put(static_cast<Op>(4), {{0}})}},
      {"last sector before the first", {put(Op::read, {{0, 5, 4}})}},
      {"a segment beyond its page", {put(Op::write, {{0, 0, 8}})}},
      {"a segment that begins beyond its page", {put(Op::write, {{0, 9, 9}})}},
      {"a segment of 256 sectors", {put(Op::write, {{0, 0, 255}})}},
      {"the last segment is the bad one", {put(Op::read, {{0}, {1}, {2, 7, 6}})}},
      {"beyond the end", {put(Op::read, {{0}}, kEnd - Sectors(7))}},
      {"starts at the end", {put(Op::write, {{0}}, kEnd)}},
      {"sector and length overflow", {put(Op::read, {{0}}, Sectors(~std::uint64_t{0} - 3))}},
      {"a discard of nothing", {put_discard(Sectors(0), Sectors(0))}},
      {"a discard beyond the end", {put_discard(kEnd - Sectors(8), Sectors(16))}},
      {"a discard that overflows", {put_discard(Sectors(8), Sectors(~std::uint64_t{0} - 7))}},
      {"an indirect request of nothing", {put_indirect(Op::read, {})}},
      {"257 indirect segments", with_indirect_count(put_indirect(Op::read, many), 257)},
      {"65535 indirect segments", with_indirect_count(put_indirect(Op::write, many), 65535)},
      {"an indirect flush", {put_indirect(Op::flush_diskcache, many)}},
      {"an indirect barrier", {put_indirect(Op::write_barrier, many)}},
      {"an indirect discard", {put_indirect(Op::discard, many)}},
      {"an indirect request in an indirect request", {put_indirect(Op::indirect, many)}},
      {"an indirect segment: last before first", {put_indirect(Op::read, bad_part({0, 5, 4}))}},
      {"an indirect segment beyond its page", {put_indirect(Op::write, bad_part({0, 0, 8}))}},
      {"indirect, beyond the end", {put_indirect(Op::read, many, kEnd - Sectors(32 * 8 - 1))}},
  };
}

// ---- "segments": each is one BLKIF_RSP_ERROR with the same id, and nothing reaches the store
// -------------------------

class BackendSegments : public AttackedRingTest, public testing::WithParamInterface<NamedDataPath> {
 protected:
  void expect_refused(AttackedRing& ring, const BadRequest& bad) {
    SCOPED_TRACE(bad.what);
    const std::size_t before = ring.responses().size();
    std::uint64_t id = 0xabcd000000000000ULL + before;
    for (auto operation : bad.script) {
      if (auto* request = std::get_if<Put>(&operation)) request->id = id;
      ring.play(operation);
    }
    ring.play({Push{}, Turn{}});
    ASSERT_EQ(ring.responses().size(), before + 1);
    EXPECT_EQ(ring.responses().back().id, id);
    EXPECT_NE(ring.responses().back().status, ResponseStatus::okay);
    EXPECT_EQ(ring.store().bytes_written, 0u);
  }
};
INSTANTIATE_TEST_SUITE_P(Paths, BackendSegments, testing::ValuesIn(kDataPaths), name_of_data_path);

TEST_P(BackendSegments, EachMalformedRequestIsOneErrorWithItsId) {
  for (const auto abi : {blkif::Abi::x86_64, blkif::Abi::x86_32}) {
    AttackedRing& ring = connect({.abi = abi, .policy = GetParam().back_policy()});
    const auto requests = bad_requests();
    for (const auto& bad : requests) expect_refused(ring, bad);
    EXPECT_EQ(ring.count(Counter::requests_malformed), requests.size());
    EXPECT_EQ(ring.count(Counter::requests_read) + ring.count(Counter::requests_write), 0u);
  }
}

TEST_P(BackendSegments, ABlockOf4KiBIsTheUnitOfOffsetsAndLengths) {
  AttackedRing& ring = connect({.policy = GetParam().back_policy(), .sector_size = 4096});
  std::vector<Part> odd(12);
  odd[3] = {0, 0, 6};
  for (const auto& bad : {BadRequest{"half a block", {put(Op::write, {{0, 0, 3}})}},
                          BadRequest{"two halves of a block", {put(Op::write, {{0, 0, 3}, {1, 0, 3}})}},
                          BadRequest{"a whole block at half an offset", {put(Op::read, {{0, 4, 7}, {1, 0, 3}})}},
                          BadRequest{"between two blocks", {put(Op::write, {{0}}, Sectors(4))}},
                          BadRequest{"an odd indirect segment", {put_indirect(Op::write, odd)}},
                          BadRequest{"a discard between two blocks", {put_discard(Sectors(4), Sectors(8))}},
                          BadRequest{"a discard of half a block", {put_discard(Sectors(8), Sectors(4))}}}) {
    expect_refused(ring, bad);
  }
}

TEST_P(BackendSegments, WhatWasNotOfferedIsNotSupported) {
  blkif::BackPolicy policy = GetParam().back_policy();
  policy.indirect_segments = 0;
  policy.ordering = blkif::Ordering::none;
  policy.discard = blkif::Discard::off;
  AttackedRing& ring = connect({.policy = policy});
  ring.play({put_indirect(Op::read, std::vector<Part>(32)), put(Op::write_barrier, {{0}}), put(Op::flush_diskcache, {}),
             put_discard(Sectors(0), Sectors(8)), Push{}, Turn{}});
  EXPECT_EQ(statuses(), std::vector(4, ResponseStatus::not_supported));
}

// ---- CVE-2013-2140 and XSA-142: a device that must not be written
// ----------------------------------------------------

class BackendCve2013_2140 : public AttackedRingTest {};

TEST_F(BackendCve2013_2140, ADiscardOnAReadOnlyDeviceIsRefused) {
  // Also if the frontend asks for what is not offered to it.
  for (const auto discard : {blkif::Discard::off, blkif::Discard::on, blkif::Discard::secure}) {
    blkif::BackPolicy policy;
    policy.discard = discard;
    AttackedRing& ring = connect({.policy = policy, .readonly = true, .store_at_once = false});
    ring.play({put_discard(Sectors(0), Sectors(8)), put_discard(Sectors(0), kEnd), Patch{.offset = 1, .value = 1},
               Push{}, Turn{}});
    EXPECT_EQ(ring.count(Counter::responses_error), 2u);
    EXPECT_TRUE(ring.store().held.empty());
  }
}

class BackendXsa142 : public AttackedRingTest, public testing::WithParamInterface<NamedDataPath> {};
INSTANTIATE_TEST_SUITE_P(Paths, BackendXsa142, testing::ValuesIn(kDataPaths), name_of_data_path);

TEST_P(BackendXsa142, AWriteToAReadOnlyDeviceIsRefusedInEachForm) {
  AttackedRing& ring = connect({.policy = GetParam().back_policy(), .readonly = true, .store_at_once = false});
  ring.play({put(Op::write, {{0}}), put_indirect(Op::write, std::vector<Part>(12)), put(Op::write_barrier, {{0}}),
             Push{}, Turn{}});
  EXPECT_EQ(statuses(), std::vector(3, ResponseStatus::error));
  EXPECT_TRUE(ring.store().held.empty());
  EXPECT_EQ(ring.count(Counter::maps) + ring.count(Counter::copies), 0u);
  ring.play({put(Op::read, {{0}}), Push{}, Turn{}});
  EXPECT_EQ(ring.store().operations(), std::vector{store::Op::read}) << "reading is what it is for";
}

}  // namespace
}  // namespace xblk::scenarios
