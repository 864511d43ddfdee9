#include "drivers/blkif/policy.hpp"

#include <algorithm>
#include <array>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "drivers/base/check.hpp"
#include "drivers/blkif/negotiation.hpp"
#include "drivers/blkif/policy_presets.hpp"
#include "drivers/blkif/text.hpp"

namespace xblk::blkif {
namespace {

constexpr std::uint8_t kFront = static_cast<std::uint8_t>(PolicyEnd::front);
constexpr std::uint8_t kBack = static_cast<std::uint8_t>(PolicyEnd::back);
constexpr std::uint8_t kHost = static_cast<std::uint8_t>(PolicyEnd::host);

// In the order of the enumerations.
constexpr std::array<std::string_view, 2> kPoolsWords = {"per-device", "per-queue"};
constexpr std::array<std::string_view, 2> kPollingWords = {"event", "adaptive"};
constexpr std::array<std::string_view, 3> kDataPathWords = {"map", "copy", "hybrid"};
constexpr std::array<std::string_view, 2> kFinalCheckWords = {"response", "dispatch"};
constexpr std::array<std::string_view, 3> kLookupWords = {"list", "tree", "array"};
constexpr std::array<std::string_view, 2> kPurgeWords = {"off", "lru"};
constexpr std::array<std::string_view, 2> kQueueMapWords = {"spread", "device"};
constexpr std::array<std::string_view, 4> kOrderingWords = {"none", "barrier", "flush", "both"};
constexpr std::array<std::string_view, 3> kDiscardWords = {"off", "on", "secure"};
constexpr std::array<std::string_view, 5> kPresetWords = {"none", "linux-6.x", "seed-2011", "seed-2012", "seed-2015"};
constexpr std::array<std::string_view, 2> kGrantLocksWords = {"coarse", "split"};

constexpr PolicyKey boolean(std::string_view name, std::uint8_t ends, bool value, std::string_view help) {
  return {name, ends, PolicyKind::boolean, 0, 1, {}, value, value, value, help};
}
constexpr PolicyKey integer(std::string_view name, std::uint8_t ends, std::uint64_t min, std::uint64_t max,
                            std::uint64_t front, std::uint64_t back, std::string_view help) {
  return {name, ends, PolicyKind::integer, min, max, {}, front, back, 0, help};
}
template <class E>
constexpr PolicyKey words(std::string_view name, std::uint8_t ends, std::span<const std::string_view> list, E value,
                          std::string_view help) {
  const auto position = static_cast<std::uint64_t>(value);
  return {name, ends, PolicyKind::words, 0, list.size() - 1, list, position, position, position, help};
}

constexpr std::uint64_t kMaxPersistentGrants = 1u << 20;  // 4 GiB mapped: beyond any ring, and still no overflow

constexpr std::uint64_t kHybridMax = kIndirectSegmentsMax * kPageSize;  // the largest request, bytes
constexpr std::uint64_t kUnmapBatchMax = 256;
constexpr std::uint64_t kUnusedMax_ms = 24 * 3600 * 1000;
constexpr std::uint64_t kFreePagesMax = 1u << 20;
constexpr std::uint64_t kHoldoffMax = 512;  // the slots of the largest ring
constexpr std::uint64_t kHoldoffMax_us = 10000;

constexpr std::array kPolicies = {
    words("preset", kFront | kBack, kPresetWords, Preset::none,
          "a driver of history: the values of all policies that are not set themselves"),
    boolean("persistent", kFront | kBack, true, "offer persistent grants; in force if both ends do"),
    words("data-path", kBack, kDataPathWords, DataPath::map,
          "how data moves while persistent grants are not in force: map and unmap per request, grant copy, or hybrid: "
          "copy what is at most hybrid-threshold long, map the rest"),
    integer("hybrid-threshold", kBack, 0, kHybridMax, 0, 16384,
            "bytes of a request up to which data-path=hybrid copies"),
    integer("unmap-batch", kBack, 1, kUnmapBatchMax, 0, 32,
            "pages of finished requests unmapped by one call (Xen flushes TLBs once per 32); 1: a call per request"),
    integer("queues", kFront | kBack, 1, kQueuesMax, 1, 4, "rings asked for (front), offered at most (back)"),
    integer("ring-page-order", kFront | kBack, 0, kRingPageOrderMax, 0, 4,
            "log2 of the pages of a ring, asked for (front), offered at most (back)"),
    integer("indirect-segments", kFront | kBack, 0, kIndirectSegmentsMax, 32, 256,
            "segments of an indirect request, used (front), offered (back) at most; 0: direct requests only"),
    integer("max-persistent-grants", kBack, 0, kMaxPersistentGrants, 0, 1056,
            "grants of a pool kept mapped; beyond them grants are mapped and unmapped per request"),
    words("persistent-lookup", kBack, kLookupWords, Lookup::array,
          "how a persistent grant is found by its reference: linear list (seed 003), red-black tree (Linux), or array"),
    words("persistent-purge", kBack, kPurgeWords, Purge::lru,
          "a full persistent pool: serve further grants per request, or give up the least recently used 5 %"),
    integer("persistent-unused-ms", kBack, 0, kUnusedMax_ms, 0, 60000,
            "milliseconds after which an unused persistent grant is unmapped; 0: never"),
    integer("max-free-pages", kBack, 0, kFreePagesMax, 0, 1024, "free pages that a pool keeps for grant copies"),
    words("pools", kFront | kBack, kPoolsWords, Pools::per_queue,
          "grant and page pools shared by the queues of a device, or one for each queue"),
    words("polling", kFront | kBack, kPollingWords, Polling::adaptive,
          "wait for an event each time, or poll the ring while work keeps coming"),
    words("final-check", kBack, kFinalCheckWords, FinalCheck::dispatch,
          "where further requests are looked for: after each dispatch round, or only as responses are made (seed 001)"),
    integer("event-holdoff", kFront | kBack, 1, kHoldoffMax, 1, 1,
            "responses (front) or requests (back) to ask one event for; 1: an event at the first"),
    integer("event-holdoff-us", kFront | kBack, 1, kHoldoffMax_us, 50, 50,
            "microseconds after which a held-off event is no longer waited for"),
    words("queue-map", kBack, kQueueMapWords, QueueMap::spread,
          "a device's rings over all workers of the backend, or all on one"),
    words("ordering", kBack, kOrderingWords, Ordering::both,
          "offer write barriers (drain over all rings), cache flushes, both or none"),
    words("discard", kBack, kDiscardWords, Discard::secure, "offer discard, and secure discard, where the store can"),
    boolean("trusted", kFront, true, "off: no byte of a page but the request's own is ever granted (XSA-403)"),
    words("grant-locks", kHost, kGrantLocksWords, GrantLocks::split,
          "locking of the emulated grant tables: one lock for a table, or separate locks"),
};

// Ties a policy's name to the member that holds it; the table above knows everything else.
template <class Policy>
struct Field {
  std::string_view name;
  std::uint64_t (*get)(const Policy&);
  void (*set)(Policy&, std::uint64_t);
};

template <class Policy, auto member>
constexpr Field<Policy> field(std::string_view name) {
  return {name, [](const Policy& p) { return static_cast<std::uint64_t>(p.*member); },
          [](Policy& p, std::uint64_t value) {
            p.*member = static_cast<std::remove_reference_t<decltype(p.*member)>>(value);
          }};
}

constexpr std::array kFrontFields = {
    field<FrontPolicy, &FrontPolicy::preset>("preset"),
    field<FrontPolicy, &FrontPolicy::persistent>("persistent"),
    field<FrontPolicy, &FrontPolicy::queues>("queues"),
    field<FrontPolicy, &FrontPolicy::ring_page_order>("ring-page-order"),
    field<FrontPolicy, &FrontPolicy::indirect_segments>("indirect-segments"),
    field<FrontPolicy, &FrontPolicy::pools>("pools"),
    field<FrontPolicy, &FrontPolicy::polling>("polling"),
    field<FrontPolicy, &FrontPolicy::event_holdoff>("event-holdoff"),
    field<FrontPolicy, &FrontPolicy::event_holdoff_us>("event-holdoff-us"),
    field<FrontPolicy, &FrontPolicy::trusted>("trusted"),
};
constexpr std::array kBackFields = {
    field<BackPolicy, &BackPolicy::preset>("preset"),
    field<BackPolicy, &BackPolicy::persistent>("persistent"),
    field<BackPolicy, &BackPolicy::data_path>("data-path"),
    field<BackPolicy, &BackPolicy::hybrid_threshold>("hybrid-threshold"),
    field<BackPolicy, &BackPolicy::unmap_batch>("unmap-batch"),
    field<BackPolicy, &BackPolicy::queues>("queues"),
    field<BackPolicy, &BackPolicy::ring_page_order>("ring-page-order"),
    field<BackPolicy, &BackPolicy::indirect_segments>("indirect-segments"),
    field<BackPolicy, &BackPolicy::max_persistent_grants>("max-persistent-grants"),
    field<BackPolicy, &BackPolicy::persistent_lookup>("persistent-lookup"),
    field<BackPolicy, &BackPolicy::persistent_purge>("persistent-purge"),
    field<BackPolicy, &BackPolicy::persistent_unused_ms>("persistent-unused-ms"),
    field<BackPolicy, &BackPolicy::max_free_pages>("max-free-pages"),
    field<BackPolicy, &BackPolicy::pools>("pools"),
    field<BackPolicy, &BackPolicy::polling>("polling"),
    field<BackPolicy, &BackPolicy::final_check>("final-check"),
    field<BackPolicy, &BackPolicy::event_holdoff>("event-holdoff"),
    field<BackPolicy, &BackPolicy::event_holdoff_us>("event-holdoff-us"),
    field<BackPolicy, &BackPolicy::queue_map>("queue-map"),
    field<BackPolicy, &BackPolicy::ordering>("ordering"),
    field<BackPolicy, &BackPolicy::discard>("discard"),
};
constexpr std::array kHostFields = {field<HostPolicy, &HostPolicy::grant_locks>("grant-locks")};

std::string names_for(PolicyEnd end) {
  std::vector<std::string_view> names;
  for (const PolicyKey& key : kPolicies) {
    if (key.applies_to(end)) names.push_back(key.name);
  }
  return fmt::format("{}", fmt::join(names, ", "));
}

// The driver that the entries start from: written policies override it, one by one.
template <class Policy>
Result<Policy> preset_of(const PolicyMap& entries) {
  const auto written = entries.find("preset");
  if (written == entries.end()) return Policy{};
  const auto value = parse_policy_value(*find_policy("preset"), written->second);
  if (!value) return tl::make_unexpected(value.error());
  return preset_policy<Policy>(static_cast<Preset>(*value));
}

template <class Policy>
Result<Policy> parse(PolicyEnd end, std::span<const Field<Policy>> fields, const PolicyMap& entries) {
  const std::string_view reconnect = keys::kPolicyReconnect.substr(keys::kPolicyDirectory.size() + 1);
  auto policy = preset_of<Policy>(entries);
  if (!policy) return policy;
  for (const auto& [name, text] : entries) {
    if (name == reconnect) continue;
    const auto field = std::ranges::find(fields, std::string_view(name), &Field<Policy>::name);
    if (field == fields.end()) {
      return fail(EINVAL, fmt::format("{} = {}: not a policy of the {} end; those are {}",
                                      keys::policy_key(quoted(name)), quoted(text), to_string(end), names_for(end)));
    }
    const auto value = parse_policy_value(*find_policy(name), text);
    if (!value) return tl::make_unexpected(value.error());
    field->set(*policy, *value);
  }
  return policy;
}

template <class Policy>
PolicyMap print(std::span<const Field<Policy>> fields, const Policy& policy) {
  PolicyMap entries;
  for (const auto& field : fields) {
    entries.emplace(field.name, print_policy_value(*find_policy(field.name), field.get(policy)));
  }
  return entries;
}

}  // namespace

std::string_view to_string(PolicyEnd end) {
  switch (end) {
    case PolicyEnd::front:
      return "front";
    case PolicyEnd::back:
      return "back";
    case PolicyEnd::host:
      return "host";
  }
  XBLK_CHECK(false, "not a PolicyEnd");
}

std::span<const PolicyKey> policy_keys() {
  return kPolicies;
}

const PolicyKey* find_policy(std::string_view name) {
  const auto found = std::ranges::find(kPolicies, name, &PolicyKey::name);
  return found == kPolicies.end() ? nullptr : &*found;
}

std::string allowed_values(const PolicyKey& key) {
  switch (key.kind) {
    case PolicyKind::boolean:
      return "0 or 1";
    case PolicyKind::integer:
      return fmt::format("a whole number from {} to {}", key.min, key.max);
    case PolicyKind::words:
      return fmt::format("{}", fmt::join(key.words, " or "));
  }
  XBLK_CHECK(false, "not a PolicyKind");
}

Result<std::uint64_t> parse_policy_value(const PolicyKey& key, std::string_view text) {
  std::optional<std::uint64_t> value;
  switch (key.kind) {
    case PolicyKind::boolean:
      if (text == "1" || text == "on" || text == "true") value = 1;
      if (text == "0" || text == "off" || text == "false") value = 0;
      break;
    case PolicyKind::integer:
      value = parse_decimal(text);
      if (value && (*value < key.min || *value > key.max)) value.reset();
      break;
    case PolicyKind::words:
      const auto found = std::ranges::find(key.words, text);
      if (found != key.words.end()) value = static_cast<std::uint64_t>(found - key.words.begin());
      break;
  }
  if (value) return *value;
  return fail(EINVAL,
              fmt::format("{} = {}: must be {}", keys::policy_key(key.name), quoted(text), allowed_values(key)));
}

std::string print_policy_value(const PolicyKey& key, std::uint64_t value) {
  XBLK_CHECK(value >= key.min && value <= key.max, "a policy's value is within its range");
  return key.kind == PolicyKind::words ? std::string(key.words[value]) : std::to_string(value);
}

Result<FrontPolicy> parse_front_policy(const PolicyMap& entries) {
  return parse<FrontPolicy>(PolicyEnd::front, kFrontFields, entries);
}
Result<BackPolicy> parse_back_policy(const PolicyMap& entries) {
  return parse<BackPolicy>(PolicyEnd::back, kBackFields, entries);
}
Result<HostPolicy> parse_host_policy(const PolicyMap& entries) {
  return parse<HostPolicy>(PolicyEnd::host, kHostFields, entries);
}

PolicyMap to_keys(const FrontPolicy& policy) {
  return print<FrontPolicy>(kFrontFields, policy);
}
PolicyMap to_keys(const BackPolicy& policy) {
  return print<BackPolicy>(kBackFields, policy);
}
PolicyMap to_keys(const HostPolicy& policy) {
  return print<HostPolicy>(kHostFields, policy);
}

}  // namespace xblk::blkif
