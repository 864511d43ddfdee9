#include "drivers/blkif/negotiation.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "drivers/base/prng.hpp"

namespace xblk::blkif {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

constexpr BackendLimits kLimits{.queues_max = 4, .ring_page_order_max = 4, .indirect_segments_max = 256};

FrontendOffer offer(std::uint32_t queues, std::uint32_t order) {
  FrontendOffer result;
  result.persistent = true;
  result.ring_page_order = order;
  std::uint32_t next = 8;
  for (std::uint32_t i = 0; i < queues; ++i) {
    QueueOffer queue;
    for (std::uint32_t page = 0; page < 1u << order; ++page) queue.ring_refs.emplace_back(next++);
    queue.event_channel = EventPort(40 + i);
    result.queues.push_back(queue);
  }
  return result;
}

KeyMap as_map(const KeyList& list) {
  return {list.begin(), list.end()};
}

// The message of the refusal; empty if it was accepted.
std::string refusal(const KeyMap& keys, const BackendLimits& limits = kLimits) {
  const auto result = parse_frontend_keys(keys, limits);
  if (result) return "";
  EXPECT_NE(result.error().code, 0);
  EXPECT_THAT(result.error().message, Not(HasSubstr("\n")));
  return result.error().message;
}

KeyMap with(KeyMap keys, const std::string& key, const std::string& value) {
  keys[key] = value;
  return keys;
}
KeyMap without(KeyMap keys, const std::string& key) {
  EXPECT_EQ(keys.erase(key), 1u) << key;
  return keys;
}

TEST(Keys, Names) {
  EXPECT_EQ(keys::queue_prefix(3), "queue-3/");
  EXPECT_EQ(keys::ring_ref_key(0, 1), "ring-ref");
  EXPECT_EQ(keys::ring_ref_key(0, 2), "ring-ref0");
  EXPECT_EQ(keys::ring_ref_key(15, 16), "ring-ref15");
  EXPECT_EQ(keys::policy_key("queues"), "xblk-policy/queues");
  EXPECT_EQ(keys::negotiated_key("queues"), "xblk-negotiated/queues");
}

TEST(ParseBounded, TakesTheRangeAndNothingElse) {
  EXPECT_EQ(keys::parse_bounded("k", "0", 0, 4).value(), 0u);
  EXPECT_EQ(keys::parse_bounded("k", "4", 0, 4).value(), 4u);
  EXPECT_EQ(keys::parse_bounded("k", "18446744073709551615", 0, UINT64_MAX).value(), UINT64_MAX);
  for (const std::string_view bad :
       {"", "5", "31", "64", "-1", "+1", " 1", "1 ", "0x1", "1e9", "18446744073709551616"}) {
    EXPECT_FALSE(keys::parse_bounded("k", bad, 0, 4)) << bad;
  }
  EXPECT_FALSE(keys::parse_bounded("k", std::string_view("1\0", 2), 0, 4));
  const auto result = keys::parse_bounded("ring-page-order", "64", 0, 4);
  EXPECT_EQ(result.error().message, "ring-page-order = \"64\": must be a whole number from 0 to 4");
}

TEST(ParseBounded, AHostileValueIsShownShortAndHarmless) {
  const auto result = keys::parse_bounded("k", "\x1b[31m" + std::string(5000, 'A'), 0, 4);
  ASSERT_FALSE(result);
  EXPECT_LT(result.error().message.size(), 200u);
  EXPECT_THAT(result.error().message, Not(HasSubstr("\x1b")));
}

TEST(FrontendKeys, AreThoseOfThePlainProtocolForOneQueueAndPage) {
  EXPECT_THAT(
      as_map(frontend_keys(offer(1, 0))),
      testing::ContainerEq(
          KeyMap{{"protocol", "x86_64-abi"}, {"feature-persistent", "1"}, {"ring-ref", "8"}, {"event-channel", "40"}}));
}

TEST(FrontendKeys, AreThoseOfTheSpecsExampleForTwoQueuesOfTwoPages) {
  EXPECT_THAT(as_map(frontend_keys(offer(2, 1))), testing::ContainerEq(KeyMap{{"protocol", "x86_64-abi"},
                                                                              {"feature-persistent", "1"},
                                                                              {"ring-page-order", "1"},
                                                                              {"multi-queue-num-queues", "2"},
                                                                              {"queue-0/ring-ref0", "8"},
                                                                              {"queue-0/ring-ref1", "9"},
                                                                              {"queue-0/event-channel", "40"},
                                                                              {"queue-1/ring-ref0", "10"},
                                                                              {"queue-1/ring-ref1", "11"},
                                                                              {"queue-1/event-channel", "41"}}));
}

TEST(FrontendKeys, EveryShapeRoundTrips) {
  for (std::uint32_t queues = 1; queues <= 4; ++queues) {
    for (std::uint32_t order = 0; order <= 4; ++order) {
      for (const Abi abi : {Abi::x86_64, Abi::x86_32}) {
        FrontendOffer sent = offer(queues, order);
        sent.abi = abi;
        sent.persistent = (queues & 1) != 0;
        const auto received = parse_frontend_keys(as_map(frontend_keys(sent)), kLimits);
        ASSERT_TRUE(received) << received.error().message;
        EXPECT_EQ(*received, sent);
      }
    }
  }
}

TEST(FrontendKeys, OptionalKeysHaveTheDefaultsOfTheSpec) {
  const auto received = parse_frontend_keys({{"ring-ref", "8"}, {"event-channel", "3"}}, kLimits);
  ASSERT_TRUE(received) << received.error().message;
  EXPECT_FALSE(received->persistent);
  EXPECT_EQ(received->ring_page_order, 0u);
  EXPECT_EQ(received->queues.size(), 1u);
  EXPECT_EQ(received->abi, Abi::x86_32);
}

TEST(FrontendKeys, NumbersAreBoundedBeforeUse) {
  const KeyMap good = as_map(frontend_keys(offer(2, 1)));
  for (const char* order : {"5", "31", "32", "64", "-1", "", "4294967296", "1;"}) {
    EXPECT_THAT(refusal(with(good, "ring-page-order", order)), HasSubstr("ring-page-order")) << order;
  }
  for (const char* queues : {"0", "5", "1000000000", "-1", "junk"}) {
    EXPECT_THAT(refusal(with(good, "multi-queue-num-queues", queues)), HasSubstr("from 1 to 4")) << queues;
  }
  EXPECT_THAT(refusal(good, {.queues_max = 1, .ring_page_order_max = 4}), HasSubstr("multi-queue-num-queues"));
  EXPECT_THAT(refusal(good, {.queues_max = 4, .ring_page_order_max = 0}), HasSubstr("ring-page-order"));
  for (const char* ref : {"4294967296", "-1", "", "8 "}) {
    EXPECT_THAT(refusal(with(good, "queue-1/ring-ref0", ref)), HasSubstr("queue-1/ring-ref0")) << ref;
  }
  for (const char* port : {"0", "4294967296", "x"}) {
    EXPECT_THAT(refusal(with(good, "queue-1/event-channel", port)), HasSubstr("queue-1/event-channel")) << port;
  }
  EXPECT_THAT(refusal(with(good, "feature-persistent", "2")), HasSubstr("feature-persistent"));
  EXPECT_THAT(refusal(with(good, "protocol", "vax-abi")), HasSubstr("protocol"));
}

TEST(FrontendKeys, EachMissingTransportKeyIsNamed) {
  for (const auto& shape : {offer(1, 0), offer(1, 2), offer(3, 0), offer(2, 1)}) {
    const KeyMap good = as_map(frontend_keys(shape));
    for (const auto& [key, value] : good) {
      if (key.find("ring-ref") == std::string::npos && key.find("event-channel") == std::string::npos) continue;
      EXPECT_THAT(refusal(without(good, key)), HasSubstr(key));
    }
  }
}

TEST(FrontendKeys, RepeatedReferencesAndPortsAreRefused) {
  const KeyMap good = as_map(frontend_keys(offer(2, 1)));
  EXPECT_THAT(refusal(with(good, "queue-0/ring-ref1", "8")), HasSubstr("queue-0/ring-ref1 = 8"));
  EXPECT_THAT(refusal(with(good, "queue-1/ring-ref0", "9")), HasSubstr("twice")) << "across queues";
  EXPECT_THAT(refusal(with(good, "queue-1/event-channel", "40")), HasSubstr("twice"));
}

TEST(FrontendKeys, APageNumberedOnePageRingIsAccepted) {
  // FreeBSD and XenServer number the page of a one-page ring when they write the order.
  const auto received =
      parse_frontend_keys({{"ring-page-order", "0"}, {"ring-ref0", "9"}, {"event-channel", "3"}}, kLimits);
  ASSERT_TRUE(received) << received.error().message;
  EXPECT_THAT(received->queues[0].ring_refs, ElementsAre(GrantRef(9)));
}

// Linux blkfront never deletes keys: each pair of shapes, one written over the other without cleaning.
TEST(FrontendKeys, StaleMixturesAreRefusedOrHarmlessNeverMisread) {
  for (std::uint32_t old_queues = 1; old_queues <= 4; ++old_queues) {
    for (std::uint32_t old_order = 0; old_order <= 2; ++old_order) {
      for (std::uint32_t new_queues = 1; new_queues <= 4; ++new_queues) {
        for (std::uint32_t new_order = 0; new_order <= 2; ++new_order) {
          KeyMap keys = as_map(frontend_keys(offer(old_queues, old_order)));
          FrontendOffer fresh = offer(new_queues, new_order);
          for (auto& queue : fresh.queues) {
            for (auto& ref : queue.ring_refs) ref = GrantRef(ref.value() + 1000);
            queue.event_channel = EventPort(queue.event_channel.value() + 1000);
          }
          for (const auto& [key, value] : frontend_keys(fresh)) keys[key] = value;
          const auto received = parse_frontend_keys(keys, kLimits);
          if (received) {
            EXPECT_EQ(*received, fresh) << old_queues << "/" << old_order << " -> " << new_queues << "/" << new_order;
          } else {
            EXPECT_THAT(received.error().message,
                        testing::AnyOf(HasSubstr("earlier connection"), HasSubstr("missing")));
          }
          // With the stale keys deleted it is always read right.
          for (const auto& key : stale_frontend_keys(fresh, keys)) {
            std::erase_if(keys,
                          [&](const auto& entry) { return entry.first == key || entry.first.starts_with(key + "/"); });
          }
          const auto clean = parse_frontend_keys(keys, kLimits);
          ASSERT_TRUE(clean) << clean.error().message;
          EXPECT_EQ(*clean, fresh);
          EXPECT_THAT(keys, testing::ContainerEq(as_map(frontend_keys(fresh))));
        }
      }
    }
  }
}

TEST(FrontendKeys, TheTwoDangerousMixturesAreNamed) {
  // One queue written over four: top-level keys beside a stale multi-queue-num-queues.
  KeyMap keys = as_map(frontend_keys(offer(4, 0)));
  for (const char* key : {"ring-ref", "ring-ref0", "event-channel"}) {
    EXPECT_THAT(refusal(with(keys, key, "99")), HasSubstr(std::string(key) + " and multi-queue-num-queues"));
  }
  // One page written over two.
  keys = as_map(frontend_keys(offer(1, 1)));
  keys["ring-ref"] = "99";
  EXPECT_THAT(refusal(keys), testing::AllOf(HasSubstr("ring-ref and ring-ref0")));
}

TEST(FrontendKeys, WhatLiesBeyondTheCountsIsIgnored) {
  KeyMap keys = as_map(frontend_keys(offer(2, 1)));
  keys["queue-2/ring-ref0"] = "junk";
  keys["queue-7"] = "";
  keys["queue-0/ring-ref9"] = "8";
  keys["virtual-device"] = "51712";
  const auto received = parse_frontend_keys(keys, kLimits);
  ASSERT_TRUE(received) << received.error().message;
  EXPECT_EQ(*received, offer(2, 1));
}

TEST(StaleKeys, AreTransportKeysAndWholeQueuesOnly) {
  const KeyMap existing = {{"backend", "/x"},
                           {"state", "1"},
                           {"virtual-device", "51712"},
                           {"ring-reference", "mine"},
                           {"queue-length", "mine"},
                           {"xblk-policy/queues", "2"},
                           {"multi-queue-num-queues", "4"},
                           {"ring-page-order", "2"},
                           {"ring-ref0", "1"},
                           {"ring-ref1", "2"},
                           {"queue-3", ""},
                           {"queue-3/ring-ref", "1"},
                           {"queue-12/event-channel", "1"}};
  EXPECT_THAT(stale_frontend_keys(offer(1, 0), existing), ElementsAre("multi-queue-num-queues", "queue-12", "queue-3",
                                                                      "ring-page-order", "ring-ref0", "ring-ref1"));
  EXPECT_THAT(stale_frontend_keys(offer(2, 0), {{"ring-ref", "1"},
                                                {"event-channel", "2"},
                                                {"queue-1", ""},
                                                {"queue-1/ring-ref", "3"},
                                                {"queue-1/ring-ref0", "4"},
                                                {"queue-2", ""}}),
              ElementsAre("event-channel", "queue-1/ring-ref0", "queue-2", "ring-ref"));
  EXPECT_THAT(stale_frontend_keys(offer(4, 1), as_map(frontend_keys(offer(4, 1)))), testing::IsEmpty());
}

BackendOffer full_backend_offer() {
  BackendOffer result;
  result.limits = kLimits;
  result.sectors = Sectors(1u << 20);
  result.info = kVdiskReadonly;
  result.sector_size = 4096;
  result.physical_sector_size = 8192;
  result.persistent = result.flush = result.barrier = result.discard = result.discard_secure = true;
  result.discard_granularity = 65536;
  result.discard_alignment = 4096;
  return result;
}

KeyMap backend_map(const BackendOffer& sent) {
  KeyMap keys = as_map(backend_limit_keys(sent.limits));
  keys.merge(as_map(backend_property_keys(sent)));
  return keys;
}

std::string backend_refusal(const std::string& key, const std::string& value) {
  const auto result = parse_backend_keys(with(backend_map(full_backend_offer()), key, value));
  return result ? "" : result.error().message;
}

TEST(BackendKeys, RoundTrip) {
  const BackendOffer full = full_backend_offer();
  EXPECT_EQ(parse_backend_keys(backend_map(full)).value(), full);
  EXPECT_EQ(parse_backend_limits(as_map(backend_limit_keys(kLimits))).value(), kLimits);
  // Each feature alone, so that no two keys are swapped.
  for (const auto member :
       {&BackendOffer::persistent, &BackendOffer::flush, &BackendOffer::barrier, &BackendOffer::discard}) {
    BackendOffer one;
    one.sectors = Sectors(8);
    one.*member = true;
    EXPECT_EQ(parse_backend_keys(backend_map(one)).value(), one);
  }
}

TEST(BackendKeys, AbsentFeaturesHaveTheDefaultsOfTheSpec) {
  const auto received = parse_backend_keys({{"sectors", "2048"}, {"sector-size", "512"}, {"info", "0"}});
  ASSERT_TRUE(received) << received.error().message;
  BackendOffer expected;
  expected.sectors = Sectors(2048);
  EXPECT_EQ(*received, expected);
  EXPECT_EQ(parse_backend_limits({}).value(), BackendLimits{});
}

TEST(BackendKeys, IndirectRequestsAreOfferedByTheKeyOnly) {
  EXPECT_EQ(as_map(backend_limit_keys({.queues_max = 1})).count("feature-max-indirect-segments"), 0u);
}

TEST(BackendKeys, EachRequiredKeyIsNamedWhenMissing) {
  for (const char* key : {"sectors", "sector-size", "info"}) {
    const auto result = parse_backend_keys(without(backend_map(full_backend_offer()), key));
    ASSERT_FALSE(result) << key;
    EXPECT_THAT(result.error().message, HasSubstr(std::string(key) + ": missing"));
  }
}

TEST(BackendKeys, HostileSizesAreRefused) {
  for (const char* size : {"0", "256", "513", "1536", "8192", "65536", "-512", "4294967808", ""}) {
    EXPECT_THAT(backend_refusal("sector-size", size), HasSubstr("sector-size")) << size;
  }
  for (const char* sectors : {"0", "7", "18014398509481985", "18446744073709551615", "-8"}) {
    EXPECT_THAT(backend_refusal("sectors", sectors), HasSubstr("sectors")) << sectors;
  }
  for (const char* size : {"0", "512", "4097", "6144"}) {
    EXPECT_THAT(backend_refusal("physical-sector-size", size), HasSubstr("physical-sector-size")) << size;
  }
  for (const char* granularity : {"0", "511", "6144", "4294967296"}) {
    EXPECT_THAT(backend_refusal("discard-granularity", granularity), HasSubstr("discard-granularity")) << granularity;
  }
  for (const char* key :
       {"feature-persistent", "feature-flush-cache", "feature-barrier", "feature-discard", "discard-secure"}) {
    EXPECT_THAT(backend_refusal(key, "2"), HasSubstr(key));
    EXPECT_THAT(backend_refusal(key, "yes"), HasSubstr(key));
  }
}

TEST(BackendKeys, DiscardDetailsMeanNothingWithoutDiscard) {
  KeyMap keys = with(backend_map(full_backend_offer()), "feature-discard", "0");
  keys["discard-granularity"] = "0";
  const auto received = parse_backend_keys(keys);
  ASSERT_TRUE(received) << received.error().message;
  EXPECT_FALSE(received->discard || received->discard_secure);
  EXPECT_EQ(received->discard_granularity, received->sector_size);
}

TEST(BackendKeys, GenerousLimitsAreCutToWhatWeCanUse) {
  const KeyMap keys = {{"multi-queue-max-queues", "4294967295"},
                       {"max-ring-page-order", "31"},
                       {"feature-max-indirect-segments", "4096"}};
  const BackendLimits limits = parse_backend_limits(keys).value();
  EXPECT_EQ(limits.queues_max, kQueuesMax);
  EXPECT_EQ(limits.ring_page_order_max, kRingPageOrderMax);
  EXPECT_EQ(limits.indirect_segments_max, kIndirectSegmentsMax);
  for (const char* key : {"multi-queue-max-queues", "max-ring-page-order", "feature-max-indirect-segments"}) {
    for (const char* bad : {"-1", "4294967296", ""}) EXPECT_FALSE(parse_backend_limits({{key, bad}})) << key << bad;
  }
  EXPECT_FALSE(parse_backend_limits({{"multi-queue-max-queues", "0"}}));
}

// Values from a list of the usual suspects, in random combination: parsing never fails to answer, and what it accepts
// is within bounds.
TEST(Negotiation, RandomHostileKeysAreRefusedOrWithinBounds) {
  const std::string values[] = {"",           "0",          "1",
                                "2",          "4",          "5",
                                "8",          "31",         "64",
                                "512",        "4096",       "-1",
                                "1e9",        "4294967296", "18446744073709551615",
                                "x86_64-abi", "\n",         std::string(3000, '9')};
  const std::string names[] = {"protocol",
                               "feature-persistent",
                               "ring-page-order",
                               "multi-queue-num-queues",
                               "ring-ref",
                               "ring-ref0",
                               "ring-ref1",
                               "event-channel",
                               "queue-0/ring-ref",
                               "queue-0/event-channel",
                               "queue-1/ring-ref",
                               "queue-1/event-channel",
                               "sectors",
                               "sector-size",
                               "info"};
  constexpr std::uint64_t kSeed = 313;
  Prng random(kSeed);
  SCOPED_TRACE(testing::Message() << "seed " << kSeed);
  int accepted = 0;
  for (int i = 0; i < 20000; ++i) {
    KeyMap keys;
    for (const auto& name : names) {
      if (!random.one_in(3)) keys[name] = values[random.below(std::size(values))];
    }
    if (const auto front = parse_frontend_keys(keys, kLimits)) {
      ++accepted;
      ASSERT_LE(front->queues.size(), kLimits.queues_max);
      for (const auto& queue : front->queues) ASSERT_EQ(queue.ring_refs.size(), 1u << front->ring_page_order);
    }
    if (const auto back = parse_backend_keys(keys)) {
      ++accepted;
      ASSERT_GE(back->sector_size, 512u);
      ASSERT_GT(back->sectors, Sectors(0));
    }
  }
  EXPECT_GT(accepted, 10) << "the generator must reach the accepting paths too";
}

}  // namespace
}  // namespace xblk::blkif
