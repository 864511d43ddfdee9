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
  publish(keys, kVbd.frontend_directory(),
          {{"persistent", "1"},
           {"queues", "2"},
           {"ring-page-order", "0"},
           {"indirect-segments", "32"},
           {"pools", "per-queue"},
           {"polling", "adaptive"}});
  publish(keys, kVbd.backend_directory(),
          {{"persistent", "1"},
           {"queues", "2"},
           {"ring-page-order", "0"},
           {"indirect-segments", "256"},
           {"data-path", "persistent"},
           {"max-persistent-grants", "1056"},
           {"pools", "per-queue"},
           {"polling", "adaptive"}});
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
  EXPECT_EQ(verification.checks.size(), 15U);
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
                          std::uint32_t jobs = 1) {
  return verify_counters(agreement, {front.begin, front.end, back.begin, back.end, jobs}).first_failure();
}

TEST(VerifyCounters, PersistentNeedsHitsAndNoUnmapWhenWarm) {
  const auto asked = agreed({});
  const auto front = samples({{{Counter::requests, 10}}});
  EXPECT_EQ(proof_failure(asked, front, samples({{{Counter::persistent_hits, 10}}})), "");
  EXPECT_EQ(proof_failure(asked, front, samples({{{Counter::maps, 10}}})),
            "persistent hits: expected more than 0, seen 0");
  EXPECT_EQ(proof_failure(asked, front, samples({{{Counter::persistent_hits, 9}, {Counter::unmaps, 1}}})),
            "unmaps when warm: expected 0, seen 1");
  EXPECT_EQ(proof_failure(
                asked, front,
                samples({{{Counter::persistent_hits, 9}, {Counter::unmaps, 1}, {Counter::persistent_overflows, 1}}})),
            "")
      << "above the cap grants are mapped per request by design";
}

TEST(VerifyCounters, WithoutPersistentTheDataPathMustHaveMoved) {
  const auto front = samples({{{Counter::requests, 10}}});
  const auto map = agreed({{"persistent", "0"}});
  EXPECT_EQ(proof_failure(map, front, samples({{{Counter::maps, 10}}})), "");
  EXPECT_EQ(proof_failure(map, front, samples({{{Counter::copies, 10}}})), "grant maps: expected more than 0, seen 0");
  EXPECT_EQ(proof_failure(map, front, samples({{{Counter::maps, 10}, {Counter::persistent_hits, 1}}})),
            "persistent hits: expected 0, seen 1");
  const auto copy = agreed({{"persistent", "0"}}, {{"data-path", "copy"}});
  EXPECT_EQ(proof_failure(copy, front, samples({{{Counter::copies, 10}}})), "");
  EXPECT_EQ(proof_failure(copy, front, samples({{{Counter::maps, 10}}})), "grant copies: expected more than 0, seen 0");
}

TEST(VerifyCounters, EveryQueueThatJobsCanReachHasRequests) {
  const auto asked = agreed({{"queues", "3"}});
  const auto back = samples({{{Counter::persistent_hits, 1}}, {}, {}});
  const auto two_busy = samples({{{Counter::requests, 1}}, {}, {{Counter::requests, 1}}});
  EXPECT_EQ(proof_failure(asked, two_busy, back, 2), "");
  EXPECT_EQ(proof_failure(asked, two_busy, back, 3), "queues with requests: expected at least 3, seen 2");
  EXPECT_EQ(proof_failure(asked, samples({{{Counter::requests, 1}}}), back, 1), "queues counted: expected 3, seen 1");
}

TEST(VerifyCounters, AReconnectBetweenTheSamplesProvesNothing) {
  auto front = samples({{{Counter::requests, 10}}});
  front.end.generation = 1;
  EXPECT_EQ(proof_failure(agreed({}), front, samples({{{Counter::persistent_hits, 10}}})),
            "one connection: expected yes, seen no");
}

}  // namespace
}  // namespace xblk::toggle
