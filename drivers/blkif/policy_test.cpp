#include "drivers/blkif/policy.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>

namespace xblk::blkif {
namespace {

using testing::ContainerEq;
using testing::HasSubstr;

TEST(PolicyTable, IsSound) {
  std::set<std::string_view> names;
  for (const PolicyKey& key : policy_keys()) {
    SCOPED_TRACE(key.name);
    EXPECT_TRUE(names.insert(key.name).second);
    EXPECT_EQ(find_policy(key.name), &key);
    EXPECT_NE(key.ends, 0);
    EXPECT_FALSE(key.help.empty());
    EXPECT_EQ(key.kind == PolicyKind::words, !key.words.empty());
    for (const PolicyEnd end : {PolicyEnd::front, PolicyEnd::back, PolicyEnd::host}) {
      if (!key.applies_to(end)) continue;
      EXPECT_GE(key.default_of(end), key.min);
      EXPECT_LE(key.default_of(end), key.max);
    }
  }
  EXPECT_EQ(find_policy("no-such-policy"), nullptr);
}

TEST(PolicyTable, EveryAllowedValueRoundTripsAndTheNextOnesDoNot) {
  for (const PolicyKey& key : policy_keys()) {
    SCOPED_TRACE(key.name);
    for (const std::uint64_t value : {key.min, (key.min + key.max) / 2, key.max}) {
      EXPECT_EQ(parse_policy_value(key, print_policy_value(key, value)).value(), value);
    }
    for (const std::string& bad :
         {std::string("-1"), std::string(), std::string("no-such-word"), std::to_string(key.max + 1)}) {
      const auto result = parse_policy_value(key, bad);
      ASSERT_FALSE(result) << bad;
      EXPECT_EQ(result.error().message,
                "xblk-policy/" + std::string(key.name) + " = \"" + bad + "\": must be " + allowed_values(key));
    }
  }
}

TEST(PolicyTable, BooleansAlsoComeAsWords) {
  const PolicyKey& key = *find_policy("persistent");
  for (const char* yes : {"1", "on", "true"}) EXPECT_EQ(parse_policy_value(key, yes).value(), 1u) << yes;
  for (const char* no : {"0", "off", "false"}) EXPECT_EQ(parse_policy_value(key, no).value(), 0u) << no;
  EXPECT_FALSE(parse_policy_value(key, "2"));
}

// The structures' defaults and the table's are the same: nothing written means the defaults of the table.
template <class Policy>
void expect_defaults_of(PolicyEnd end) {
  PolicyMap expected;
  for (const PolicyKey& key : policy_keys()) {
    if (key.applies_to(end)) expected[std::string(key.name)] = print_policy_value(key, key.default_of(end));
  }
  EXPECT_THAT(to_keys(Policy{}), ContainerEq(expected));
}

TEST(Policies, EveryPolicyOfAnEndHasAMemberWithTheDefaultOfTheTable) {
  expect_defaults_of<FrontPolicy>(PolicyEnd::front);
  expect_defaults_of<BackPolicy>(PolicyEnd::back);
  expect_defaults_of<HostPolicy>(PolicyEnd::host);
}

TEST(Policies, NothingWrittenMeansTheDefaults) {
  EXPECT_EQ(parse_front_policy({}).value(), FrontPolicy{});
  EXPECT_EQ(parse_back_policy({}).value(), BackPolicy{});
  EXPECT_EQ(parse_host_policy({}).value(), HostPolicy{});
}

TEST(Policies, EveryMemberTravels) {
  const FrontPolicy front{.preset = Preset::seed_2012,
                          .persistent = false,
                          .queues = 3,
                          .ring_page_order = 2,
                          .indirect_segments = 7,
                          .pools = Pools::per_device,
                          .polling = Polling::event,
                          .event_holdoff = 8,
                          .event_holdoff_us = 20,
                          .trusted = false};
  EXPECT_EQ(parse_front_policy(to_keys(front)).value(), front);
  const BackPolicy back{.preset = Preset::linux_6_x,
                        .persistent = false,
                        .data_path = DataPath::copy,
                        .hybrid_threshold = 8192,
                        .unmap_batch = 5,
                        .queues = 16,
                        .ring_page_order = 1,
                        .indirect_segments = 9,
                        .max_persistent_grants = 352,
                        .persistent_lookup = Lookup::list,
                        .persistent_purge = Purge::off,
                        .persistent_unused_ms = 77,
                        .max_free_pages = 3,
                        .pools = Pools::per_device,
                        .polling = Polling::event,
                        .final_check = FinalCheck::response,
                        .event_holdoff = 7,
                        .event_holdoff_us = 900,
                        .queue_map = QueueMap::device,
                        .ordering = Ordering::barrier,
                        .discard = Discard::on};
  EXPECT_EQ(parse_back_policy(to_keys(back)).value(), back);
  const HostPolicy host{.grant_locks = GrantLocks::coarse};
  EXPECT_EQ(parse_host_policy(to_keys(host)).value(), host);
  EXPECT_THAT(to_keys(back), testing::Contains(testing::Pair("data-path", "copy")));
  EXPECT_THAT(to_keys(back), testing::Contains(testing::Pair("pools", "per-device")));
}

TEST(Policies, UnknownAndForeignNamesAreRefusedWithTheRightOnes) {
  const auto unknown = parse_front_policy({{"quues", "2"}});
  ASSERT_FALSE(unknown);
  EXPECT_THAT(unknown.error().message, testing::AllOf(HasSubstr("quues"), HasSubstr("preset, persistent, queues")));
  EXPECT_FALSE(parse_front_policy({{"data-path", "copy"}})) << "a policy of the back end";
  EXPECT_FALSE(parse_front_policy({{"grant-locks", "coarse"}}));
  EXPECT_FALSE(parse_back_policy({{"grant-locks", "coarse"}}));
  EXPECT_FALSE(parse_host_policy({{"queues", "1"}}));
}

TEST(Presets, EachIsADriverOfHistoryThatIsOverriddenKeyByKey) {
  const BackPolicy found_in_2011 = parse_back_policy({{"preset", "seed-2011"}}).value();
  EXPECT_EQ(found_in_2011.preset, Preset::seed_2011);
  EXPECT_EQ(found_in_2011.final_check, FinalCheck::response);
  EXPECT_FALSE(found_in_2011.persistent);
  EXPECT_EQ(found_in_2011.queues, 1u);
  BackPolicy mended = found_in_2011;
  mended.final_check = FinalCheck::dispatch;
  EXPECT_EQ(parse_back_policy({{"preset", "seed-2011"}, {"final-check", "dispatch"}}).value(), mended);
  // Names sort before and after "preset": what is written wins all the same.
  EXPECT_EQ(parse_back_policy({{"preset", "seed-2015"}, {"data-path", "copy"}}).value().data_path, DataPath::copy);
  EXPECT_EQ(parse_back_policy({{"preset", "seed-2015"}, {"queues", "2"}}).value().queues, 2u);
}

TEST(Presets, EveryPresetIsPrintedAndReadBackAndDiffersFromTheOthers) {
  std::set<PolicyMap> fronts;
  std::set<PolicyMap> backs;
  const PolicyKey& key = *find_policy("preset");
  for (const std::string_view word : key.words) {
    SCOPED_TRACE(word);
    const auto front = parse_front_policy({{"preset", std::string(word)}});
    const auto back = parse_back_policy({{"preset", std::string(word)}});
    ASSERT_TRUE(front && back);
    EXPECT_EQ(parse_front_policy(to_keys(*front)).value(), *front);
    EXPECT_EQ(parse_back_policy(to_keys(*back)).value(), *back);
    EXPECT_EQ(to_keys(*back).at("preset"), word);
    fronts.insert(to_keys(*front));
    backs.insert(to_keys(*back));
  }
  EXPECT_EQ(fronts.size(), key.words.size());
  EXPECT_EQ(backs.size(), key.words.size());
  EXPECT_FALSE(parse_back_policy({{"preset", "seed-1999"}}));
}

TEST(Policies, TheReconnectTriggerIsNoPolicy) {
  EXPECT_EQ(parse_back_policy({{"reconnect", "17"}, {"queues", "2"}}).value().queues, 2u);
}

TEST(Policies, ABadValueIsRefused) {
  for (const auto& [name, value] : PolicyMap{{"queues", "0"},
                                             {"queues ", "1"},
                                             {"ring-page-order", "5"},
                                             {"indirect-segments", "257"},
                                             {"polling", "Event"},
                                             {"pools", "0"}}) {
    EXPECT_FALSE(parse_front_policy({{name, value}})) << name << "=" << value;
  }
}

}  // namespace
}  // namespace xblk::blkif
