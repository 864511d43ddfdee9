// Frontends that attack the backend with their grants: references that are bad, that are used twice, that change under
// it, or that are too many.
#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "drivers/scenarios/hostile/attacked_ring_testing.hpp"
#include "drivers/scenarios/hostile/data_paths.hpp"

namespace xblk::scenarios {
namespace {

using blkif::Op;
using blkif::ResponseStatus;
using peer::Part;
using peer::front::EndGrant;
using peer::front::Push;
using peer::front::Put;
using peer::front::Regrant;
using peer::front::Tear;
using peer::front::Turn;

constexpr std::uint32_t kPages = peer::FrontPlayer<ModelPlatform>::kPages;
constexpr std::uint32_t kNotGranted = kPages;

class GrantAttack : public AttackedRingTest, public testing::WithParamInterface<NamedDataPath> {
 protected:
  AttackedRing& connect_path(const blkif::PolicyMap& more = {}) {
    blkif::PolicyMap policy = GetParam().policy;
    policy.insert(more.begin(), more.end());
    return connect({.policy = blkif::parse_back_policy(policy).value()});
  }
  ResponseStatus ask(AttackedRing& ring, Put request) {
    ring.play({std::move(request), Push{}, Turn{}});
    return ring.responses().back().status;
  }
  void expect_balanced(AttackedRing& ring) {
    ring.disconnect();
    EXPECT_EQ(ring.count(Counter::maps), ring.count(Counter::unmaps));
    EXPECT_EQ(ring.usage().mappings, 0u);
  }
};

// `length` good pages but one, at `bad`.
std::vector<Part> all_good_but(std::size_t bad, std::size_t length) {
  std::vector<Part> parts;
  for (std::uint32_t i = 0; i < length; ++i) parts.push_back({i == bad ? kNotGranted : i % kPages});
  return parts;
}

// ---- XSA-361, -365, -371: one bad grant in a batch
// -------------------------------------------------------------------

class BackendXsa361 : public GrantAttack {};
INSTANTIATE_TEST_SUITE_P(Paths, BackendXsa361, testing::ValuesIn(kDataPaths), name_of_data_path);

TEST_P(BackendXsa361, ABadGrantAtEachPositionIsOneErrorAndTheGoodOnesAreGivenBack) {
  AttackedRing& ring = connect_path({{"max-persistent-grants", "4"}});
  for (std::size_t length = 1; length <= 11; ++length) {
    for (std::size_t bad = 0; bad < length; ++bad) {
      for (const Op op : {Op::read, Op::write}) {
        EXPECT_EQ(ask(ring, Put{.op = op, .parts = all_good_but(bad, length)}), ResponseStatus::error) << bad;
      }
    }
  }
  EXPECT_EQ(ring.count(Counter::map_errors) + ring.count(Counter::copy_errors), 66u * 2);
  EXPECT_EQ(ring.store().bytes_written, 0u);
  EXPECT_EQ(ask(ring, Put{.op = Op::write, .parts = all_good_but(11, 11)}), ResponseStatus::okay);
  expect_balanced(ring);
}

class BackendXsa365 : public GrantAttack {};
INSTANTIATE_TEST_SUITE_P(Paths, BackendXsa365, testing::ValuesIn(kDataPaths), name_of_data_path);

TEST_P(BackendXsa365, ABadGrantInTheFirstBatchIsNotForgottenWhenLaterOnesAreGood) {
  AttackedRing& ring = connect_path();
  for (const std::size_t bad : {0u, 5u, 10u, 11u, 12u, 31u, 32u, 33u, 63u, 254u, 255u}) {
    EXPECT_EQ(ask(ring, Put{.op = Op::write, .parts = all_good_but(bad, 256), .indirect = true}), ResponseStatus::error)
        << bad;
  }
  EXPECT_EQ(ring.store().bytes_written, 0u);
  EXPECT_EQ(ask(ring, Put{.op = Op::write, .parts = all_good_but(256, 256), .indirect = true}), ResponseStatus::okay);
  EXPECT_EQ(ring.store().bytes_written, 256u * kPageSize);
  expect_balanced(ring);
}

class BackendXsa371 : public GrantAttack {};
INSTANTIATE_TEST_SUITE_P(Paths, BackendXsa371, testing::ValuesIn(kDataPaths), name_of_data_path);

TEST_P(BackendXsa371, AFailedRequestKeepsNoGrantOfThePoolInUse) {
  AttackedRing& ring = connect_path();
  // With grants that are cached before the failing ones of the same request.
  EXPECT_EQ(ask(ring, Put{.op = Op::write, .parts = {{0}, {1}, {2}, {3}}}), ResponseStatus::okay);
  for (int i = 0; i < 100; ++i) {
    EXPECT_EQ(ask(ring, Put{.op = Op::write, .parts = {{0}, {1}, {kNotGranted}, {4}}}), ResponseStatus::error);
  }
  const std::uint64_t misses = ring.count(Counter::persistent_misses);
  EXPECT_EQ(ask(ring, Put{.op = Op::write, .parts = {{0}, {1}, {2}, {3}}}), ResponseStatus::okay);
  EXPECT_EQ(ring.count(Counter::persistent_misses), misses) << "all of them are in the pool, and free to be used";
  expect_balanced(ring);  // the pool CHECKs that none is in use
}

// ---- XSA-362: a map fails for another reason than its reference
// ------------------------------------------------------

class BackendXsa362 : public GrantAttack {};
INSTANTIATE_TEST_SUITE_P(Paths, BackendXsa362, testing::ValuesIn(kDataPaths), name_of_data_path);

TEST_P(BackendXsa362, AGeneralErrorIsOneErrorForItsRequest) {
  AttackedRing& ring = connect_path();
  ring.play({Tear{3}, Regrant{5, 6, platform::Access::read_only}});
  EXPECT_EQ(ask(ring, Put{.op = Op::write, .parts = {{0}, {3}, {1}}}), ResponseStatus::error) << "granted no more";
  EXPECT_EQ(ask(ring, Put{.op = Op::read, .parts = {{0}, {5}, {1}}}), ResponseStatus::error)
      << "granted to be read only";
  EXPECT_EQ(ask(ring, Put{.op = Op::read, .parts = {{0}, {1}}}), ResponseStatus::okay);
  expect_balanced(ring);
}

TEST_P(BackendXsa362, WithoutMappingsLeftARequestIsCopied) {
  // The ring's page and two more.
  AttackedRing& ring = connect({.policy = GetParam().back_policy(), .mappings_max = 3});
  for (const Op op : {Op::write, Op::read}) {
    EXPECT_EQ(ask(ring, Put{.op = op, .parts = {{0}, {1}, {2}, {3}, {4}}}), ResponseStatus::okay);
    EXPECT_EQ(ask(ring, Put{.op = op, .parts = all_good_but(64, 64), .indirect = true}), ResponseStatus::okay);
  }
  EXPECT_EQ(ring.store().bytes_written, 69u * kPageSize);
  expect_balanced(ring);
}

// ---- the same reference in two requests that are alive
// ---------------------------------------------------------------

class BackendSameGrefTwice : public GrantAttack {};
INSTANTIATE_TEST_SUITE_P(Paths, BackendSameGrefTwice, testing::ValuesIn(kDataPaths), name_of_data_path);

TEST_P(BackendSameGrefTwice, InOneRequestOrInSeveralItIsServedAndKeptOnce) {
  AttackedRing& ring = connect({.policy = GetParam().back_policy(), .store_at_once = false});
  ring.play({Put{.op = Op::write, .id = 1, .parts = {{0}, {0}, {0, 2, 3}}},
             Put{.op = Op::read, .id = 2, .parts = {{0}}}, Put{.op = Op::write, .id = 3, .parts = {{0}, {1}}}, Push{},
             Turn{}});
  ASSERT_EQ(ring.store().held.size(), 3u) << "all at once";
  if (GetParam().persistent()) {
    EXPECT_EQ(ring.count(Counter::persistent_misses), 2u);
    EXPECT_EQ(ring.count(Counter::persistent_overflows), 4u) << "mapped for their request alone";
  }
  for (const std::size_t position : {1u, 1u, 0u}) ring.finish(position, 0);
  ring.play(Turn{});
  EXPECT_EQ(statuses(), std::vector(3, ResponseStatus::okay));
  EXPECT_EQ(ring.gauge(Gauge::persistent_cached), GetParam().persistent() ? 2u : 0u);
  expect_balanced(ring);
}

// ---- a persistent reference that names another page later: the backend cannot know
// -----------------------------------

class BackendGrefReuse : public AttackedRingTest {};

TEST_F(BackendGrefReuse, AMappingThatIsKeptIsOfThePageThatItWasMadeOf) {
  AttackedRing& ring = connect();
  ring.play({Put{.op = Op::write, .parts = {{0}}}, Push{}, Turn{}});
  std::memset(ring.player().page(0), 1, kPageSize);
  std::memset(ring.player().page(1), 2, kPageSize);
  ring.play({Regrant{0, 1}, Put{.op = Op::read, .parts = {{0}}}, Push{}, Turn{}});
  EXPECT_EQ(statuses(), std::vector(2, ResponseStatus::okay));
  EXPECT_EQ(ring.count(Counter::persistent_hits), 1u);
  EXPECT_EQ(ring.player().page(0)[0], std::byte{peer::HeldStore::kReadFill})
      << "the old page: the frontend's own fault";
  EXPECT_EQ(ring.player().page(1)[0], std::byte{2});
}

TEST_F(BackendGrefReuse, AGrantThatIsTakenBackWhileItIsKeptCostsOnlyItsFrontend) {
  AttackedRing& ring = connect();
  ring.play({Put{.op = Op::write, .parts = {{0}, {1}}}, Push{}, Turn{}, EndGrant{0}, Tear{1}});
  ring.play({Put{.op = Op::read, .parts = {{0}, {1}}}, Push{}, Turn{}});
  EXPECT_EQ(statuses(), std::vector(2, ResponseStatus::okay)) << "mapped, so nothing was taken back";
}

class BackendTakenBack : public GrantAttack {};
INSTANTIATE_TEST_SUITE_P(Paths, BackendTakenBack, testing::ValuesIn(kDataPaths), name_of_data_path);

TEST_P(BackendTakenBack, AGrantThatIsTakenBackInMidRequestCostsOnlyThisRequest) {
  AttackedRing& ring = connect({.policy = GetParam().back_policy(), .store_at_once = false});
  std::memset(ring.player().page(0), 1, kPageSize);
  ring.play({Put{.op = Op::read, .id = 1, .parts = {{0}}}, Push{}, Turn{}, Tear{0}});
  ring.finish(0, 0);
  ring.play(Turn{});
  ASSERT_EQ(statuses().size(), 1u);
  // Where the page was mapped its data has arrived; a copy comes too late.
  const bool mapped = GetParam().persistent() || GetParam().maps_each_request();
  EXPECT_EQ(statuses()[0], mapped ? ResponseStatus::okay : ResponseStatus::error);
  EXPECT_EQ(ring.player().page(0)[0], std::byte{mapped ? peer::HeldStore::kReadFill : std::uint8_t{1}});
  expect_balanced(ring);
}

// ---- XSA-300: a frontend that has the backend map more and more
// ------------------------------------------------------

class BackendXsa300 : public AttackedRingTest {};

// A frontend with one reference for each of many requests, all of one page.
TEST_F(BackendXsa300, ThePoolsStayAtTheirCapsHoweverManyReferencesAreUsed) {
  for (const char* purge : {"off", "lru"}) {
    blkif::PolicyMap policy{{"max-persistent-grants", "16"}, {"max-free-pages", "4"}, {"persistent-purge", purge}};
    AttackedRing& ring = connect({.policy = blkif::parse_back_policy(policy).value()});
    auto& front = ring.front();
    const auto page = front.allocate(1);
    for (std::uint64_t i = 0; i < 400; ++i) {
      blkif::Request request;
      request.op = Op::write;
      request.id = i;
      request.segment_count = 1;
      const GrantRef gref = front.grant(page, 0);
      const blkif::Segment segment{gref, 0, 7};
      front.put(request, {&segment, 1});
      ring.play({Push{}, Turn{}});
      EXPECT_LE(ring.gauge(Gauge::persistent_cached), 16u);
      EXPECT_LE(ring.usage().mappings, 17u) << "and the ring";
    }
    EXPECT_EQ(ring.count(Counter::responses_ok), 400u);
  }
}

TEST_F(BackendXsa300, AboveTheCapEachGrantIsMappedForItsRequestAlone) {
  const blkif::PolicyMap policy{{"max-persistent-grants", "2"}, {"persistent-purge", "off"}};
  AttackedRing& ring = connect({.policy = blkif::parse_back_policy(policy).value()});
  for (std::uint32_t page = 0; page < 4; ++page) ring.play({Put{.op = Op::write, .parts = {{page}}}, Push{}, Turn{}});
  EXPECT_EQ(ring.count(Counter::persistent_misses), 2u);
  EXPECT_EQ(ring.count(Counter::persistent_overflows), 2u);
  EXPECT_EQ(ring.count(Counter::unmaps), 2u);
}

TEST_F(BackendXsa300, FreePagesStayAtTheirCap) {
  blkif::PolicyMap policy{{"persistent", "0"}, {"data-path", "copy"}, {"max-free-pages", "4"}};
  AttackedRing& ring = connect({.policy = blkif::parse_back_policy(policy).value()});
  for (int i = 0; i < 20; ++i) ring.play(Put{.op = Op::write, .parts = std::vector<Part>(11)});
  ring.play({Push{}, Turn{}});
  EXPECT_EQ(ring.count(Counter::copies), 220u);
  EXPECT_EQ(ring.gauge(Gauge::free_pages), 4u);
}

}  // namespace
}  // namespace xblk::scenarios
