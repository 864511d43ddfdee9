#include "agent/toggle/verify.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "agent/toggle/fake/fake_keys.hpp"

namespace xblk::toggle {
namespace {

const Vbd kVbd{DomId(3)};

void publish(FakeKeys& keys, const std::string& directory, const FakeKeys::Map& results) {
  keys.keys[directory + "/state"] = "4";
  for (const auto& [name, value] : results) keys.keys[directory + "/xblk-negotiated/" + name] = value;
}

// Both ends as the reference drivers publish: defaults, two queues.
FakeKeys connected() {
  FakeKeys keys;
  auto front = blkif::to_keys(blkif::FrontPolicy{});
  front["queues"] = "2";
  front["ordering"] = "both";
  front["discard"] = "secure";
  front["protocol"] = "x86_64-abi";
  publish(keys, kVbd.frontend_directory(), front);
  auto back = blkif::to_keys(blkif::BackPolicy{});
  back["queues"] = "2";
  back["ring-page-order"] = "0";
  back["data-path"] = "persistent";
  back["protocol"] = "x86_64-abi";
  publish(keys, kVbd.backend_directory(), back);
  return keys;
}

Agreement agreed(const blkif::PolicyMap& front, const blkif::PolicyMap& back = {}) {
  return agreement_of({.front = front, .back = back}).value();
}

std::string failure(FakeKeys keys, const Agreement& agreement) {
  return verify_keys(keys, kVbd, agreement).first_failure();
}

TEST(VerifyKeys, BothEndsAsAsked) {
  FakeKeys keys = connected();
  const auto verification = verify_keys(keys, kVbd, agreed({{"queues", "2"}}));
  EXPECT_TRUE(verification.ok()) << verification.first_failure();
}

// A policy that an end does not publish, or publishes otherwise, is found whichever it is: nothing is left out.
TEST(VerifyKeys, EveryPolicyOfTheTableIsAskedFor) {
  const auto asked = agreed({{"queues", "2"}});
  std::size_t asked_for = 0;
  for (const blkif::PolicyKey& key : blkif::policy_keys()) {
    for (const auto& [end, directory] : {std::pair{blkif::PolicyEnd::front, kVbd.frontend_directory()},
                                         std::pair{blkif::PolicyEnd::back, kVbd.backend_directory()}}) {
      if (!key.applies_to(end)) continue;
      ++asked_for;
      const std::string path = directory + "/xblk-negotiated/" + std::string(key.name);
      auto keys = connected();
      ASSERT_EQ(keys.keys.count(path), 1U) << path;
      keys.keys.erase(path);
      EXPECT_THAT(failure(keys, asked), testing::HasSubstr(std::string(key.name) + ": expected")) << path;
      keys.keys[path] = "another";
      EXPECT_THAT(failure(keys, asked), testing::HasSubstr("seen another")) << path;
    }
  }
  EXPECT_GT(asked_for, 25U);
}

TEST(VerifyKeys, WhatTheStoreCannotIsOfferedLess) {
  const auto asked = agreed({{"queues", "2"}});
  const auto with = [](const char* policy, const char* value) {
    auto keys = connected();
    keys.keys[kVbd.frontend_directory() + "/xblk-negotiated/" + policy] = value;
    return keys;
  };
  EXPECT_EQ(failure(with("discard", "on"), asked), "");
  EXPECT_EQ(failure(with("discard", "off"), asked), "");
  EXPECT_EQ(failure(with("ordering", "none"), asked), "") << "no cache to flush";
  EXPECT_EQ(failure(with("ordering", "barrier"), asked), "front ordering: expected both or none, seen barrier");
  const auto less = agreed({{"queues", "2"}}, {{"discard", "on"}});
  auto keys = with("discard", "secure");
  keys.keys[kVbd.backend_directory() + "/xblk-negotiated/discard"] = "on";
  EXPECT_EQ(failure(keys, less), "front discard: expected on or off, seen secure") << "never more than the policy";
}

TEST(VerifyKeys, TheResultIsWhatBothOffer) {
  EXPECT_FALSE(agreed({{"persistent", "1"}}, {{"persistent", "0"}}).persistent);
  EXPECT_FALSE(agreed({{"persistent", "0"}}).persistent);
  EXPECT_EQ(agreed({{"queues", "8"}}, {{"queues", "4"}}).queues, 4U);
  EXPECT_EQ(agreed({{"ring-page-order", "4"}}, {{"ring-page-order", "2"}}).ring_page_order, 2U);
}

TEST(VerifyKeys, EachDifferenceIsFound) {
  const auto asked = agreed({{"queues", "2"}});
  EXPECT_EQ(failure(connected(), agreed({{"queues", "3"}})), "front queues: expected 3, seen 2");
  EXPECT_EQ(failure(connected(), agreed({{"queues", "2"}, {"persistent", "0"}})),
            "front persistent: expected 0, seen 1");
  EXPECT_EQ(failure(connected(), agreed({{"queues", "2"}, {"pools", "per-device"}})),
            "front pools: expected per-device, seen per-queue");
  EXPECT_EQ(failure(connected(), agreed({{"queues", "2"}}, {{"max-persistent-grants", "10"}})),
            "back max-persistent-grants: expected 10, seen 1056");
  auto keys = connected();
  keys.keys[kVbd.backend_directory() + "/xblk-negotiated/persistent"] = "0";
  EXPECT_EQ(failure(keys, asked), "back persistent: expected 1, seen 0") << "the ends disagree";
  keys = connected();
  keys.keys[kVbd.frontend_directory() + "/state"] = "6";
  EXPECT_EQ(failure(keys, asked), "front state: expected 4, seen 6");
  EXPECT_EQ(failure(FakeKeys(), asked), "front state: expected 4, seen absent");
}

TEST(VerifyKeys, DataPathWithoutPersistentGrants) {
  auto keys = connected();
  for (const auto& directory : {kVbd.frontend_directory(), kVbd.backend_directory()}) {
    keys.keys[directory + "/xblk-negotiated/persistent"] = "0";
  }
  keys.keys[kVbd.backend_directory() + "/xblk-negotiated/data-path"] = "copy";
  const blkif::PolicyMap front{{"queues", "2"}, {"persistent", "0"}};
  EXPECT_EQ(failure(keys, agreed(front, {{"data-path", "copy"}})), "");
  EXPECT_EQ(failure(keys, agreed(front)), "back data-path: expected map, seen copy");
}

TEST(VerifyKeys, FewIndirectSegmentsAreDirect) {
  auto keys = connected();
  keys.keys[kVbd.frontend_directory() + "/xblk-negotiated/indirect-segments"] = "0";
  EXPECT_EQ(failure(keys, agreed({{"queues", "2"}, {"indirect-segments", "11"}})), "");
  EXPECT_NE(failure(keys, agreed({{"queues", "2"}, {"indirect-segments", "12"}})), "");
}

struct Samples {
  StatisticsSample begin;
  StatisticsSample end;
};

using Counts = std::map<Counter, std::uint64_t>;

Samples samples(const std::vector<Counts>& queues) {
  Samples result;
  for (const Counts& counts : queues) {
    QueueSample begin;
    begin.counters.fill(5);
    QueueSample end = begin;
    for (const auto& [counter, value] : counts) end.counters[static_cast<std::size_t>(counter)] += value;
    result.begin.queues.push_back(begin);
    result.end.queues.push_back(end);
  }
  return result;
}

std::string proof_failure(const Agreement& agreement, const Samples& front, const Samples& back,
                          const CountedLoad& load = {}) {
  return verify_counters(agreement, {front.begin, front.end, back.begin, back.end, load}).first_failure();
}

// A frontend that sent requests through its own pages, or out of its caller's.
Samples copying_front(std::uint64_t requests = 10) {
  return samples({{{Counter::requests, requests}, {Counter::copied_bytes, requests * 4096}}});
}
Samples granting_front(std::uint64_t requests = 10) {
  return samples({{{Counter::requests, requests}}});
}

// With grants in its cache.
Samples caching_back(Counts counts, std::uint64_t cached = 1) {
  auto result = samples({std::move(counts)});
  result.end.queues[0].gauges[static_cast<std::size_t>(Gauge::persistent_cached)] = cached;
  return result;
}

TEST(VerifyCounters, PersistentNeedsHitsAndNoUnmapWhenWarm) {
  const auto asked = agreed({});
  const auto front = copying_front();
  EXPECT_EQ(proof_failure(asked, front, caching_back({{Counter::persistent_hits, 10}})), "");
  EXPECT_EQ(proof_failure(asked, front, samples({{{Counter::maps, 10}}})),
            "persistent hits: expected more than 0, seen 0");
  EXPECT_EQ(proof_failure(asked, front, caching_back({{Counter::persistent_hits, 9}, {Counter::unmaps, 1}})),
            "unmaps when warm: expected 0, seen 1");
  EXPECT_EQ(
      proof_failure(
          asked, front,
          caching_back({{Counter::persistent_hits, 9}, {Counter::unmaps, 1}, {Counter::persistent_overflows, 1}})),
      "")
      << "above the cap grants are mapped per request by design";
  EXPECT_EQ(proof_failure(asked, front, caching_back({{Counter::persistent_hits, 9}, {Counter::copies, 1}})),
            "grant copies: expected 0, seen 1");
  EXPECT_EQ(proof_failure(asked, granting_front(), caching_back({{Counter::persistent_hits, 10}})),
            "bytes copied by the frontend: expected more than 0, seen 0");
}

TEST(VerifyCounters, WithoutPersistentTheDataPathMustHaveMoved) {
  const auto front = granting_front();
  const auto map = agreed({{"persistent", "0"}});
  EXPECT_EQ(proof_failure(map, front, samples({{{Counter::maps, 10}}})), "");
  EXPECT_EQ(proof_failure(map, front, samples({{{Counter::copies, 10}}})), "grant maps: expected more than 0, seen 0");
  EXPECT_EQ(proof_failure(map, front, samples({{{Counter::maps, 9}, {Counter::copies, 1}}})),
            "grant copies: expected 0, seen 1");
  EXPECT_EQ(proof_failure(map, front, samples({{{Counter::maps, 9}, {Counter::copies, 1}, {Counter::map_errors, 1}}})),
            "")
      << "out of mapping capacity";
  EXPECT_EQ(proof_failure(map, front, samples({{{Counter::maps, 10}, {Counter::persistent_hits, 1}}})),
            "persistent hits: expected 0, seen 1");
  const auto copy = agreed({{"persistent", "0"}}, {{"data-path", "copy"}});
  EXPECT_EQ(proof_failure(copy, front, samples({{{Counter::copies, 10}}})), "");
  EXPECT_EQ(proof_failure(copy, front, samples({{{Counter::maps, 10}}})), "grant copies: expected more than 0, seen 0");
  EXPECT_EQ(proof_failure(copy, front, samples({{{Counter::copies, 10}, {Counter::maps, 1}}})),
            "grant maps: expected 0, seen 1");
}

TEST(VerifyCounters, HybridCopiesUpToItsThreshold) {
  const auto asked = agreed({{"persistent", "0"}}, {{"data-path", "hybrid"}, {"hybrid-threshold", "16384"}});
  const auto copies = samples({{{Counter::copies, 10}}});
  const auto maps = samples({{{Counter::maps, 10}}});
  const auto of = [](std::uint64_t block) { return CountedLoad{.block = Bytes(block)}; };
  auto front = granting_front();
  EXPECT_EQ(proof_failure(asked, front, copies, of(16384)), "");
  EXPECT_EQ(proof_failure(asked, front, maps, of(16384)),
            "grant copies of requests within the threshold: expected more than 0, seen 0");
  EXPECT_EQ(proof_failure(asked, front, samples({{{Counter::copies, 9}, {Counter::maps, 1}}}), of(4096)),
            "grant maps of requests within the threshold: expected 0, seen 1");
  EXPECT_EQ(proof_failure(asked, front, maps, of(20480)), "");
  EXPECT_EQ(proof_failure(asked, front, copies, of(20480)),
            "grant maps of requests beyond the threshold: expected more than 0, seen 0");
  EXPECT_EQ(proof_failure(asked, front, copies), "") << "several sizes: either will do";
  // A request holds 11 pages without indirect segments, whatever the I/O's size.
  const auto direct = agreed({{"persistent", "0"}, {"indirect-segments", "0"}},
                             {{"data-path", "hybrid"}, {"hybrid-threshold", "45056"}});
  EXPECT_EQ(proof_failure(direct, front, copies, of(1 << 20)), "");
}

TEST(VerifyCounters, UnmapsLeaveInBatchesOrOneRequestAtATime) {
  const auto front = granting_front(1000);
  const auto back = [](std::uint64_t unmaps, std::uint64_t calls, std::uint64_t batches) {
    return samples({{{Counter::requests_read, 1000},
                     {Counter::batches, batches},
                     {Counter::maps, unmaps},
                     {Counter::unmaps, unmaps},
                     {Counter::unmap_calls, calls}}});
  };
  const auto single = agreed({{"persistent", "0"}}, {{"unmap-batch", "1"}});
  EXPECT_EQ(proof_failure(single, front, back(1000, 1000, 100)), "");
  EXPECT_EQ(proof_failure(single, front, back(1000, 100, 100)),
            "unmap calls, one for each request: expected at least 968, seen 100");
  const auto batched = agreed({{"persistent", "0"}}, {{"unmap-batch", "8"}});
  EXPECT_EQ(proof_failure(batched, front, back(1000, 125, 100)), "");
  EXPECT_EQ(proof_failure(batched, front, back(1000, 100, 100)),
            "unmaps of so many calls: expected at most 808, seen 1000");
  EXPECT_EQ(proof_failure(batched, front, back(1000, 1000, 500)),
            "unmap calls: expected fewer than unmaps, seen 1000 for 1000");
  EXPECT_EQ(proof_failure(batched, front, back(1000, 1000, 900)), "") << "one request a round has nothing to batch";
  EXPECT_EQ(proof_failure(batched, front, back(1000, 1000, 500), {.store_answers_late = true}), "");
  EXPECT_EQ(proof_failure(batched, front, back(2000, 2000, 900), {.store_answers_late = true}),
            "unmap calls: expected fewer than unmaps, seen 2000 for 2000");
}

TEST(VerifyCounters, TheCacheIsBoundedAndFoundAsAsked) {
  const auto front = copying_front(10'000);
  const auto back = [](std::uint64_t steps, std::uint64_t cached = 100, std::uint64_t purged = 0) {
    return caching_back({{Counter::persistent_hits, 10'000},
                         {Counter::persistent_lookup_steps, steps},
                         {Counter::persistent_purged, purged}},
                        cached);
  };
  const auto lookup = [](const char* how) {
    return agreed({}, {{"persistent-lookup", how}, {"max-persistent-grants", "1056"}});
  };
  EXPECT_EQ(proof_failure(lookup("array"), front, back(10'000)), "");
  EXPECT_EQ(proof_failure(lookup("array"), front, back(60'000)),
            "steps of lookups: expected at most 10256, seen 60000");
  EXPECT_EQ(proof_failure(lookup("tree"), front, back(60'000)), "");
  EXPECT_EQ(proof_failure(lookup("tree"), front, back(500'000)),
            "steps of lookups: expected at most 235888, seen 500000");
  EXPECT_EQ(proof_failure(lookup("list"), front, back(500'000)), "");
  EXPECT_EQ(proof_failure(lookup("array"), front, back(10'000, 1057)),
            "persistent grants: expected at most 1056, seen 1057");
  const blkif::PolicyMap keep = {{"persistent-purge", "off"}, {"persistent-unused-ms", "0"}};
  EXPECT_EQ(proof_failure(agreed({}, keep), front, back(10'000, 100, 5)),
            "persistent grants given up: expected 0, seen 5");
  EXPECT_EQ(proof_failure(agreed({}), front, back(10'000, 100, 5)), "");
}

TEST(VerifyCounters, PoolsAreWhereTheyAreReported) {
  const auto front = samples({{{Counter::requests, 5}, {Counter::copied_bytes, 1}}, {{Counter::requests, 5}}});
  auto back = samples({{{Counter::persistent_hits, 5}}, {{Counter::persistent_hits, 5}}});
  const auto cached = static_cast<std::size_t>(Gauge::persistent_cached);
  const auto own = agreed({{"queues", "2"}});
  const auto shared = agreed({{"queues", "2"}}, {{"pools", "per-device"}});
  back.end.queues[0].gauges[cached] = 8;
  EXPECT_EQ(proof_failure(shared, front, back), "");
  EXPECT_EQ(proof_failure(own, front, back), "grants in the pool of queue 1: expected more than 0, seen 0");
  back.end.queues[1].gauges[cached] = 8;
  EXPECT_EQ(proof_failure(own, front, back), "");
  EXPECT_EQ(proof_failure(shared, front, back), "grants in a pool of queue 1: expected 0, seen 8");
}

// A counter that must stand still while its policy is off, and may move while it is on.
TEST(VerifyCounters, WhatIsOffDoesNotHappen) {
  struct Case {
    blkif::PolicyMap front_off;
    blkif::PolicyMap back_off;
    bool of_front;
    Counter counter;
    std::string message;
  };
  const Case cases[] = {
      {{{"polling", "event"}}, {}, true, Counter::polls, "polls of the frontend"},
      {{}, {{"polling", "event"}}, false, Counter::polls, "polls of the backend"},
      {{{"event-holdoff", "1"}}, {}, true, Counter::events_held_off, "events held off by the frontend"},
      {{}, {{"event-holdoff", "1"}}, false, Counter::events_held_off, "events held off by the backend"},
      {{}, {{"final-check", "dispatch"}}, false, Counter::requests_deferred, "requests deferred"},
      {{{"pools", "per-queue"}}, {}, true, Counter::pool_lock_contended, "waits for a pool of the frontend"},
      {{}, {{"pools", "per-queue"}}, false, Counter::pool_lock_contended, "waits for a pool of the backend"},
      {{}, {{"ordering", "none"}}, false, Counter::requests_flush, "flushes"},
      {{}, {{"ordering", "flush"}}, false, Counter::barrier_drains, "barriers"},
      {{}, {{"discard", "off"}}, false, Counter::requests_discard, "discards"},
      {{{"indirect-segments", "11"}}, {}, true, Counter::requests_indirect, "indirect requests"},
  };
  const blkif::PolicyMap front_on = {{"event-holdoff", "8"}, {"pools", "per-device"}};
  const blkif::PolicyMap back_on = {{"event-holdoff", "8"}, {"pools", "per-device"}, {"final-check", "response"}};
  for (const Case& each : cases) {
    SCOPED_TRACE(each.message);
    auto front = copying_front();
    auto back = caching_back({{Counter::persistent_hits, 10}});
    auto& moved = each.of_front ? front.end : back.end;
    moved.queues[0].counters[static_cast<std::size_t>(each.counter)] += 3;
    auto front_policy = front_on;
    auto back_policy = back_on;
    EXPECT_EQ(proof_failure(agreed(front_policy, back_policy), front, back), "");
    for (const auto& [name, value] : each.front_off) front_policy[name] = value;
    for (const auto& [name, value] : each.back_off) back_policy[name] = value;
    EXPECT_EQ(proof_failure(agreed(front_policy, back_policy), front, back), each.message + ": expected 0, seen 3");
  }
}

TEST(VerifyCounters, LargeBlocksNeedIndirectRequests) {
  const auto back = caching_back({{Counter::persistent_hits, 10}});
  EXPECT_EQ(proof_failure(agreed({}), copying_front(), back, {.block = Bytes(45056)}), "");
  EXPECT_EQ(proof_failure(agreed({}), copying_front(), back, {.block = Bytes(49152)}),
            "indirect requests: expected more than 0, seen 0");
}

TEST(VerifyCounters, ABackendThatIsNotTrustedSeesOnlyCopies) {
  const auto back = samples({{{Counter::maps, 10}}});
  const auto trusted = agreed({{"persistent", "0"}});
  const auto untrusted = agreed({{"persistent", "0"}, {"trusted", "0"}});
  EXPECT_EQ(proof_failure(untrusted, copying_front(), back), "");
  EXPECT_EQ(proof_failure(untrusted, granting_front(), back),
            "bytes copied by the frontend: expected more than 0, seen 0");
  EXPECT_EQ(proof_failure(trusted, copying_front(), back), "bytes copied by the frontend: expected 0, seen 40960");
}

TEST(VerifyCounters, FreePagesAreBounded) {
  const auto asked = agreed({{"persistent", "0"}}, {{"data-path", "copy"}, {"max-free-pages", "64"}});
  auto back = samples({{{Counter::copies, 10}}});
  auto& gauge = back.end.queues[0].gauges[static_cast<std::size_t>(Gauge::free_pages)];
  gauge = 64;
  EXPECT_EQ(proof_failure(asked, granting_front(), back), "");
  gauge = 65;
  EXPECT_EQ(proof_failure(asked, granting_front(), back), "free pages kept: expected at most 64, seen 65");
}

TEST(VerifyCounters, EveryQueueThatJobsCanReachHasRequests) {
  const auto asked = agreed({{"queues", "3"}, {"persistent", "0"}});
  const auto back = samples({{{Counter::maps, 1}}, {}, {}});
  const auto two_busy = samples({{{Counter::requests, 1}}, {}, {{Counter::requests, 1}}});
  EXPECT_EQ(proof_failure(asked, two_busy, back, {.submitters = 2}), "");
  EXPECT_EQ(proof_failure(asked, two_busy, back, {.submitters = 3}),
            "queues with requests: expected at least 3, seen 2");
  EXPECT_EQ(proof_failure(asked, samples({{{Counter::requests, 1}}}), back), "queues counted: expected 3, seen 1");
}

TEST(VerifyCounters, AReconnectBetweenTheSamplesProvesNothing) {
  auto front = copying_front();
  front.end.generation = 1;
  EXPECT_EQ(proof_failure(agreed({}), front, samples({{{Counter::persistent_hits, 10}}})),
            "one connection: expected yes, seen no");
}

}  // namespace
}  // namespace xblk::toggle
