#include "drivers/scenarios/interop_matrix.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "drivers/base/check.hpp"
#include "drivers/blkif/wire.hpp"
#include "drivers/scenarios/covering_array.hpp"

namespace xblk::scenarios {
namespace {

using blkif::PolicyEnd;
using blkif::PolicyKey;
using blkif::PolicyKind;
using blkif::PolicyMap;

constexpr std::array kEnds = {PolicyEnd::front, PolicyEnd::back, PolicyEnd::host};

// What stands for an integer's whole range, besides its default: the ends of the range and where behaviour changes.
struct Values {
  std::string_view policy;
  std::vector<std::uint64_t> values;
};
const std::vector<Values>& integer_values() {
  static const std::vector<Values> table = {
      {"hybrid-threshold", {0, 4096, 1048576}},  // nothing, single pages, everything is copied
      {"unmap-batch", {1, 5}},                   // 5 divides no ring
      {"queues", {1, 3, 4}},                     // 3 divides nothing either
      {"ring-page-order", {0, 1, 4}},            // both key forms, and the largest
      {"indirect-segments", {0, 12, 256}},       // none, one more than a direct request has, the largest
      {"max-persistent-grants", {0, 7}},         // always at the cap
      {"persistent-unused-ms", {0, 1}},          // never, always
      {"max-free-pages", {0, 3}},                //
      {"event-holdoff", {4, 512}},               // 512 is more than most rings have
      {"event-holdoff-us", {1, 1000}},           // the largest, 10 ms, would only be slow
  };
  return table;
}

std::vector<std::uint64_t> values_of(const PolicyKey& key, PolicyEnd end) {
  std::vector<std::uint64_t> values = {key.default_of(end)};
  const auto add = [&](std::uint64_t value) {
    if (std::find(values.begin(), values.end(), value) == values.end()) values.push_back(value);
  };
  if (key.kind == PolicyKind::integer) {
    const auto found = std::find_if(integer_values().begin(), integer_values().end(),
                                    [&](const Values& v) { return v.policy == key.name; });
    for (const std::uint64_t value : found == integer_values().end() ? std::vector<std::uint64_t>{} : found->values) {
      XBLK_CHECK(value >= key.min && value <= key.max, "the table's values are in the policy's range");
      add(value);
    }
  } else {
    for (std::uint64_t value = key.min; value <= key.max; ++value) add(value);
  }
  return values;
}

PolicyMap& map_of(Pairing& pairing, PolicyEnd end) {
  return end == PolicyEnd::front ? pairing.front : end == PolicyEnd::back ? pairing.back : pairing.host;
}

void set(Pairing& pairing, const PolicyFactor& factor, std::uint64_t value) {
  map_of(pairing, factor.end)[std::string(factor.key->name)] = blkif::print_policy_value(*factor.key, value);
}

Pairing defaults(const std::vector<PolicyFactor>& factors, const std::string& store) {
  Pairing pairing;
  pairing.store = store;
  for (const auto& factor : factors) set(pairing, factor, factor.values.front());
  return pairing;
}

// Only what differs from the default: the rest of 30 policies would hide it.
void print_end(std::ostream& out, PolicyEnd end, const PolicyMap& policies) {
  out << " " << to_string(end) << " {";
  for (const auto& [name, value] : policies) {
    const PolicyKey* key = blkif::find_policy(name);
    const bool is_default = key != nullptr && blkif::print_policy_value(*key, key->default_of(end)) == value;
    if (!is_default) out << " " << name << "=" << value;
  }
  out << " }";
}

std::uint64_t indirect_in_force(const blkif::FrontPolicy& front, const blkif::BackPolicy& back) {
  const std::uint64_t segments = std::min(front.indirect_segments, back.indirect_segments);
  return segments > blkif::kDirectSegmentsMax ? segments : 0;
}

// The three ways to a page, as seen from the backend. `pages`: segments, and the pages that list them.
void expect_data_path(const blkif::BackPolicy& policy, bool persistent, std::uint64_t pages, const QueueSample& back) {
  const auto count = [&](Counter counter) { return back.get(counter); };
  EXPECT_EQ(count(Counter::unmaps), count(Counter::maps)) << "everything is unmapped after the disconnect";
  if (persistent) {
    const std::uint64_t hits = count(Counter::persistent_hits);
    const std::uint64_t misses = count(Counter::persistent_misses);
    const std::uint64_t overflows = count(Counter::persistent_overflows);
    EXPECT_EQ(hits + misses + overflows, pages);
    EXPECT_EQ(count(Counter::maps), misses + overflows);
    EXPECT_EQ(count(Counter::copies), 0u);
    if (policy.max_persistent_grants == 0) {
      EXPECT_EQ(hits + misses, 0u);
    }
    return;
  }
  EXPECT_EQ(count(Counter::persistent_hits) + count(Counter::persistent_misses), 0u);
  EXPECT_EQ(count(Counter::maps) + count(Counter::copies), pages);
  const bool may_copy = policy.data_path == blkif::DataPath::copy ||
                        (policy.data_path == blkif::DataPath::hybrid && policy.hybrid_threshold > 0);
  const bool may_map = policy.data_path != blkif::DataPath::copy;
  // A list of segments may be fetched either way.
  if (!may_copy) {
    EXPECT_LE(count(Counter::copies), count(Counter::requests_indirect));
  }
  if (!may_map) {
    EXPECT_LE(count(Counter::maps), count(Counter::requests_indirect));
  }
}

void expect_both_ends_count_alike(const QueueSample& front, const QueueSample& back) {
  for (const Counter counter : {Counter::requests, Counter::requests_read, Counter::requests_write,
                                Counter::requests_flush, Counter::requests_discard, Counter::requests_indirect,
                                Counter::segments, Counter::read_bytes, Counter::write_bytes}) {
    EXPECT_EQ(front.get(counter), back.get(counter)) << kCounterNames[static_cast<std::size_t>(counter)];
  }
  EXPECT_EQ(back.get(Counter::responses_ok), back.get(Counter::requests));
  for (const Counter counter : {Counter::responses_error, Counter::requests_malformed, Counter::map_errors,
                                Counter::copy_errors, Counter::store_errors}) {
    EXPECT_EQ(back.get(counter), 0u) << kCounterNames[static_cast<std::size_t>(counter)];
  }
}

void expect_nothing_held(const QueueSample& end) {
  for (std::size_t g = 0; g < kGaugeCount; ++g) EXPECT_EQ(end.gauges[g], 0u) << kGaugeNames[g];
}

}  // namespace

std::ostream& operator<<(std::ostream& out, const Pairing& pairing) {
  out << pairing.store;
  print_end(out, PolicyEnd::front, pairing.front);
  print_end(out, PolicyEnd::back, pairing.back);
  print_end(out, PolicyEnd::host, pairing.host);
  return out;
}

std::vector<PolicyFactor> policy_factors() {
  std::vector<PolicyFactor> factors;
  for (const PolicyEnd end : kEnds) {
    for (const PolicyKey& key : blkif::policy_keys()) {
      if (key.applies_to(end) && key.name != "preset") factors.push_back({end, &key, values_of(key, end)});
    }
  }
  return factors;
}

std::vector<std::string_view> integers_without_values() {
  std::vector<std::string_view> missing;
  for (const PolicyFactor& factor : policy_factors()) {
    if (factor.key->kind == PolicyKind::integer && factor.values.size() < 2) missing.push_back(factor.key->name);
  }
  return missing;
}

std::vector<Pairing> pairings(unsigned strength, std::span<const std::string> stores, std::uint64_t seed) {
  const auto factors = policy_factors();
  std::vector<std::size_t> levels;
  for (const auto& factor : factors) levels.push_back(factor.values.size());
  levels.push_back(stores.size());
  std::vector<Pairing> rows = {defaults(factors, stores.front())};
  for (const ArrayRow& row : covering_array(levels, strength, seed)) {
    Pairing& pairing = rows.emplace_back();
    for (std::size_t f = 0; f < factors.size(); ++f) set(pairing, factors[f], factors[f].values[row[f]]);
    pairing.store = stores[row.back()];
  }
  return rows;
}

std::vector<Pairing> pairs_alone(const std::string& store) {
  const auto factors = policy_factors();
  const Pairing base = defaults(factors, store);
  std::vector<Pairing> rows;
  for (std::size_t a = 0; a < factors.size(); ++a) {
    for (std::size_t b = a + 1; b < factors.size(); ++b) {
      for (const std::uint64_t value_a : std::span(factors[a].values).subspan(1)) {
        for (const std::uint64_t value_b : std::span(factors[b].values).subspan(1)) {
          Pairing& pairing = rows.emplace_back(base);
          set(pairing, factors[a], value_a);
          set(pairing, factors[b], value_b);
        }
      }
    }
  }
  return rows;
}

std::vector<Pairing> preset_pairings(const std::string& store) {
  const PolicyKey* key = blkif::find_policy("preset");
  XBLK_CHECK(key != nullptr, "presets are a policy");
  std::vector<Pairing> rows;
  for (const std::string_view front : key->words) {
    for (const std::string_view back : key->words) {
      rows.push_back({{{"preset", std::string(front)}}, {{"preset", std::string(back)}}, {}, store});
    }
  }
  return rows;
}

void expect_agreement(const Pairing& pairing, const blkfront::DeviceInfo& info) {
  const auto front = blkif::parse_front_policy(pairing.front).value();
  const auto back = blkif::parse_back_policy(pairing.back).value();
  const blkfront::Negotiated& result = info.negotiated;
  EXPECT_EQ(result.persistent, front.persistent && back.persistent);
  EXPECT_EQ(result.queues, std::min(front.queues, back.queues));
  EXPECT_EQ(result.ring_page_order, std::min(front.ring_page_order, back.ring_page_order));
  EXPECT_EQ(result.indirect_segments_max, indirect_in_force(front, back));
  EXPECT_EQ(result.flush, back.ordering == blkif::Ordering::flush || back.ordering == blkif::Ordering::both);
  EXPECT_EQ(result.barrier, back.ordering == blkif::Ordering::barrier || back.ordering == blkif::Ordering::both);
  EXPECT_EQ(result.discard, back.discard != blkif::Discard::off);
  // Whether anything of a discarded file stays readable is up to its file system.
  EXPECT_EQ(result.discard_secure, back.discard == blkif::Discard::secure && pairing.store.starts_with("ram"));
}

void expect_mechanism(const Pairing& pairing, const QueueSample& front, const QueueSample& back) {
  const auto front_policy = blkif::parse_front_policy(pairing.front).value();
  const auto policy = blkif::parse_back_policy(pairing.back).value();
  expect_both_ends_count_alike(front, back);
  expect_nothing_held(front);
  expect_nothing_held(back);
  // 256 segments, the most that a request has, are listed in one page.
  const std::uint64_t pages = back.get(Counter::segments) + back.get(Counter::requests_indirect);
  expect_data_path(policy, front_policy.persistent && policy.persistent, pages, back);
  if (indirect_in_force(front_policy, policy) == 0) {
    EXPECT_EQ(back.get(Counter::requests_indirect), 0u);
  }
  if (policy.ordering == blkif::Ordering::none) {
    EXPECT_EQ(front.get(Counter::requests_flush), 0u);
  }
  if (policy.discard == blkif::Discard::off) {
    EXPECT_EQ(front.get(Counter::requests_discard), 0u);
  }
  if (policy.final_check == blkif::FinalCheck::dispatch) {
    EXPECT_EQ(back.get(Counter::requests_deferred), 0u);
  }
  if (policy.event_holdoff == 1) {
    EXPECT_EQ(back.get(Counter::events_held_off), 0u);
  }
  if (front_policy.event_holdoff == 1) {
    EXPECT_EQ(front.get(Counter::events_held_off), 0u);
  }
  if (policy.persistent_purge == blkif::Purge::off && policy.persistent_unused_ms == 0) {
    EXPECT_EQ(back.get(Counter::persistent_purged), 0u);
  }
}

}  // namespace xblk::scenarios
