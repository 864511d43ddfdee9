// Frontends that attack the backend through the shared ring: its indexes, its slots, its events.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "drivers/peer/watched_page.hpp"
#include "drivers/scenarios/hostile/attacked_ring_testing.hpp"
#include "drivers/scenarios/hostile/data_paths.hpp"

namespace xblk::scenarios {
namespace {

using blkif::Op;
using blkif::ResponseStatus;
using peer::front::Index;
using peer::front::Notify;
using peer::front::Push;
using peer::front::Put;
using peer::front::SetIndex;
using peer::front::Turn;
using testing::HasSubstr;

constexpr std::size_t kFirstSlot = blkif::kRingHeaderSize;

std::string name_of_abi(const testing::TestParamInfo<blkif::Abi>& test) {
  return test.param == blkif::Abi::x86_64 ? "x86_64" : "x86_32";
}

// ---- XSA-155 (CVE-2015-8550): shared memory that changes between two reads ------------------------------------------

class BackendXsa155 : public AttackedRingTest, public testing::WithParamInterface<blkif::Abi> {};
INSTANTIATE_TEST_SUITE_P(Abis, BackendXsa155, testing::Values(blkif::Abi::x86_64, blkif::Abi::x86_32), name_of_abi);

// By the start of each read; both ABIs align what they share to four bytes.
std::map<std::uint32_t, int> reads_of(const std::vector<peer::WatchedPage::Access>& accesses, std::size_t from,
                                      std::size_t to) {
  std::map<std::uint32_t, int> reads;
  for (const auto& access : accesses) {
    if (!access.write && access.offset >= from && access.offset < to) ++reads[access.offset / 4];
  }
  return reads;
}

TEST_P(BackendXsa155, EveryWordOfARequestIsReadOnce) {
  AttackedRing& ring = connect({.abi = GetParam()});
  ring.play({Put{.op = Op::write, .id = 1, .parts = {{0}, {1}}}, Put{.op = Op::read, .id = 2, .parts = {{2}}},
             Put{.op = Op::discard, .id = 3, .discard = Sectors(8)}, Put{.op = Op::flush_diskcache, .id = 4},
             Put{.op = static_cast<Op>(99), .id = 5}, Push{}});
  const auto accesses = ring.watched_turn(ring.front().ring());
  const std::size_t slot = blkif::slot_size(GetParam());
  for (std::size_t request = 0; request < 5; ++request) {
    const std::size_t from = kFirstSlot + request * slot;
    const auto reads = reads_of(accesses, from, from + slot);
    EXPECT_GE(reads.size(), slot / 8) << "the whole slot, in words";
    for (const auto& [word, times] : reads) {
      // The fetch of a 32-bit slot takes four bytes of the next one along, and does not look at them.
      const bool taken_along = GetParam() == blkif::Abi::x86_32 && word == from / 4;
      EXPECT_LE(times, taken_along ? 2 : 1) << "request " << request << " word " << word;
    }
  }
  EXPECT_EQ(ring.responses().size(), 5u);
}

TEST_P(BackendXsa155, EveryWordOfAnIndirectPageIsReadOnce) {
  for (const auto& path : kDataPaths) {
    // Copied by the hypervisor, the driver never sees the page itself.
    if (!path.persistent() && !path.maps_each_request()) continue;
    SCOPED_TRACE(path.name);
    AttackedRing& ring = connect({.abi = GetParam(), .policy = path.back_policy()});
    ring.play({Put{.op = Op::write, .id = 1, .parts = std::vector<peer::Part>(32), .indirect = true}, Push{}});
    const auto accesses = ring.watched_turn(ring.player().indirect_page().data());
    const auto reads = reads_of(accesses, 0, kPageSize);
    EXPECT_EQ(reads.size(), kPageSize / 8);
    for (const auto& [word, times] : reads) EXPECT_EQ(times, 1) << "word " << word;
    ASSERT_EQ(ring.responses().size(), 1u);
    EXPECT_EQ(ring.responses()[0].status, ResponseStatus::okay);
  }
}

// ---- XSA-216 (CVE-2017-10911): the backend's stack in a response's padding
// -------------------------------------------

class BackendXsa216 : public AttackedRingTest, public testing::WithParamInterface<blkif::Abi> {};
INSTANTIATE_TEST_SUITE_P(Abis, BackendXsa216, testing::Values(blkif::Abi::x86_64, blkif::Abi::x86_32), name_of_abi);

TEST_P(BackendXsa216, PaddingOfAResponseIsZeroAndTheIdComesBackWhole) {
  AttackedRing& ring = connect({.abi = GetParam()});
  const std::uint64_t id = 0xfedcba9876543210ULL;  // in the request it stands where the padding of the response will
  ring.play({Put{.op = Op::read, .id = id, .parts = {{0}}}, Put{.op = static_cast<Op>(77), .id = id},
             Put{.op = Op::write, .id = id, .parts = {{9}}}, Push{}});
  ring.play(Turn{});
  ASSERT_EQ(ring.responses().size(), 3u);
  for (std::uint32_t i = 0; i < 3; ++i) {
    EXPECT_EQ(ring.responses()[i].id, id);
    const std::byte* const slot = ring.front().slot(i);
    EXPECT_EQ(slot[9], std::byte{0});
    for (std::size_t b = 12; b < blkif::response_size(GetParam()); ++b) EXPECT_EQ(slot[b], std::byte{0}) << b;
  }
}

// ---- "insane number of requests" (RING_REQUEST_PROD_OVERFLOW)
// --------------------------------------------------------

class BackendProducerOverflow : public AttackedRingTest, public testing::WithParamInterface<std::uint32_t> {};
INSTANTIATE_TEST_SUITE_P(Ahead, BackendProducerOverflow, testing::Values(33u, 0x80000000u, 0xffffffffu),
                         testing::PrintToStringParamName());

TEST_P(BackendProducerOverflow, HaltsTheRingInsteadOfSpinning) {
  AttackedRing& ring = connect();
  ring.play(SetIndex{Index::req_prod, GetParam()});
  ring.play(Turn{100});
  EXPECT_TRUE(ring.halted());
  EXPECT_EQ(ring.count(Counter::requests), 0u);
  EXPECT_EQ(ring.count(Counter::requests_malformed), 1u) << "counted once, not once a round";
  EXPECT_FALSE(ring.ring().wants_polling());
  EXPECT_EQ(ring.ring().arm(ring.env().now()), Instant::never()) << "the worker sleeps without it";
  ring.play({Notify{100}, Turn{10}});
  EXPECT_EQ(ring.count(Counter::events_received), 1u) << "its event channel is masked";
  EXPECT_FALSE(ring.connect()) << "a reconnect starts afresh";
  ring.play({Put{.op = Op::read, .id = 5, .parts = {{0}}}, Push{}, Turn{}});
  EXPECT_EQ(ring.responses().size(), 1u);
}

class BackendHaltedRing : public AttackedRingTest {};

TEST_F(BackendHaltedRing, RequestsInFlightAreAnsweredAndGivenBackAllTheSame) {
  AttackedRing& ring = connect({.policy = kDataPaths[1].back_policy(), .store_at_once = false});
  ring.play({Put{.op = Op::read, .id = 1, .parts = {{0}, {1}}}, Push{}, Turn{}});
  ring.play({SetIndex{Index::req_prod, 0x80000000u}, Turn{}});
  EXPECT_TRUE(ring.halted());
  EXPECT_EQ(ring.count(Counter::requests), 1u);
  ring.disconnect();
  EXPECT_EQ(ring.count(Counter::responses_ok), 1u);
  EXPECT_EQ(ring.count(Counter::maps), ring.count(Counter::unmaps));
}

// ---- XSA-331, -332 (CVE-2020-27673): a storm of events
// ---------------------------------------------------------------

class BackendXsa331 : public AttackedRingTest {};

TEST_F(BackendXsa331, EventsWithoutRequestsCostAWakeUpEachAndNothingElse) {
  AttackedRing& ring = connect();
  ring.play(Turn{});  // the binding itself is an event
  ring.play(Notify{1000});
  ring.play(Turn{});
  EXPECT_EQ(ring.count(Counter::events_received), 2u) << "those that come before they are looked at are one";
  for (int i = 0; i < 1000; ++i) ring.play({Notify{}, Turn{}});
  EXPECT_EQ(ring.count(Counter::events_received), 1002u);
  EXPECT_EQ(ring.count(Counter::requests) + ring.count(Counter::batches), 0u);
  EXPECT_EQ(ring.count(Counter::notifications_sent) + ring.count(Counter::notifications_suppressed), 0u);
  ring.play({Put{.op = Op::read, .parts = {{0}}}, Push{}, Turn{}});
  EXPECT_EQ(ring.responses().size(), 1u);
}

// ---- indexes that contradict each other before the backend has seen the ring
// -----------------------------------------

class BackendRingAttach : public AttackedRingTest {};

TEST_F(BackendRingAttach, PrePoisonedIndexesAreRefused) {
  AttackedRing& ring = connect();
  for (const auto& [req_prod, rsp_prod] : std::vector<std::pair<std::uint32_t, std::uint32_t>>{
           {33, 0}, {0x80000000, 0}, {0, 1}, {10, 11}, {40, 7}, {0, 0xffffffff - 40}}) {
    ring.disconnect();
    ring.play({SetIndex{Index::req_prod, req_prod}, SetIndex{Index::rsp_prod, rsp_prod}});
    const auto refused = ring.attach();
    ASSERT_TRUE(refused) << req_prod << " " << rsp_prod;
    EXPECT_THAT(*refused, HasSubstr("contradict"));
    EXPECT_EQ(ring.usage().mappings, 0u);
    EXPECT_EQ(ring.usage().ports, 1u) << "the frontend's own";
  }
}

TEST_F(BackendRingAttach, ARingThatIsFullWhereverItsIndexesStandIsServed) {
  for (const std::uint32_t start : {0u, 7u, 0xfffffff0u}) {
    AttackedRing& ring = connect();
    ring.disconnect();
    for (std::uint32_t i = 0; i < 32; ++i) ring.play(Put{.op = Op::read, .id = i, .parts = {{0}}});
    ring.play({SetIndex{Index::rsp_prod, start}, SetIndex{Index::req_prod, start + 32}});
    ASSERT_FALSE(ring.attach());
    ring.play(Turn{2});
    EXPECT_EQ(ring.responses().size(), 32u);
    EXPECT_EQ(ring.finding(), "");
  }
}

// ---- XSA-350 (CVE-2020-29569): a worker that is stopped before it has run
// --------------------------------------------

class BackendXsa350 : public AttackedRingTest {};

TEST_F(BackendXsa350, DisconnectBeforeTheFirstRoundLeavesNothing) {
  AttackedRing& ring = connect();
  for (int i = 0; i < 500; ++i) {
    for (std::uint32_t n = 0; n < 32; ++n) ring.play(Put{.op = Op::write, .id = n, .parts = {{n % 8}}});
    ring.play(Push{});
    if (i % 3 == 0) ring.play(Turn{});
    ring.disconnect();
    EXPECT_EQ(ring.usage().mappings, 0u);
    ASSERT_FALSE(ring.connect());
  }
  EXPECT_EQ(ring.count(Counter::requests), 167u * 32) << "only those of a round that ran";
}

}  // namespace
}  // namespace xblk::scenarios
