#include "drivers/blkif/policy.hpp"

#include <algorithm>
#include <array>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "drivers/base/check.hpp"
#include "drivers/blkif/negotiation.hpp"
#include "drivers/blkif/text.hpp"

namespace xblk::blkif {
namespace {

constexpr std::uint8_t kFront = static_cast<std::uint8_t>(PolicyEnd::front);
constexpr std::uint8_t kBack = static_cast<std::uint8_t>(PolicyEnd::back);
constexpr std::uint8_t kHost = static_cast<std::uint8_t>(PolicyEnd::host);

// In the order of the enumerations.
constexpr std::array<std::string_view, 2> kPoolsWords = {"per-device", "per-queue"};
constexpr std::array<std::string_view, 2> kPollingWords = {"event", "adaptive"};
constexpr std::array<std::string_view, 2> kDataPathWords = {"map", "copy"};
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

constexpr std::array kPolicies = {
    boolean("persistent", kFront | kBack, true, "offer persistent grants; in force if both ends do"),
    words("data-path", kBack, kDataPathWords, DataPath::map,
          "how data moves while persistent grants are not in force: map and unmap per request, or grant copy"),
    integer("queues", kFront | kBack, 1, kQueuesMax, 1, 4, "rings asked for (front), offered at most (back)"),
    integer("ring-page-order", kFront | kBack, 0, kRingPageOrderMax, 0, 4,
            "log2 of the pages of a ring, asked for (front), offered at most (back)"),
    integer("indirect-segments", kFront | kBack, 0, kIndirectSegmentsMax, 32, 256,
            "segments of an indirect request, used (front), offered (back) at most; 0: direct requests only"),
    integer("max-persistent-grants", kBack, 0, kMaxPersistentGrants, 0, 1056,
            "grants of a pool kept mapped; beyond them grants are mapped and unmapped per request"),
    words("pools", kFront | kBack, kPoolsWords, Pools::per_queue,
          "grant and page pools shared by the queues of a device, or one for each queue"),
    words("polling", kFront | kBack, kPollingWords, Polling::adaptive,
          "wait for an event each time, or poll the ring while work keeps coming"),
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
    field<FrontPolicy, &FrontPolicy::persistent>("persistent"),
    field<FrontPolicy, &FrontPolicy::queues>("queues"),
    field<FrontPolicy, &FrontPolicy::ring_page_order>("ring-page-order"),
    field<FrontPolicy, &FrontPolicy::indirect_segments>("indirect-segments"),
    field<FrontPolicy, &FrontPolicy::pools>("pools"),
    field<FrontPolicy, &FrontPolicy::polling>("polling"),
};
constexpr std::array kBackFields = {
    field<BackPolicy, &BackPolicy::persistent>("persistent"),
    field<BackPolicy, &BackPolicy::data_path>("data-path"),
    field<BackPolicy, &BackPolicy::queues>("queues"),
    field<BackPolicy, &BackPolicy::ring_page_order>("ring-page-order"),
    field<BackPolicy, &BackPolicy::indirect_segments>("indirect-segments"),
    field<BackPolicy, &BackPolicy::max_persistent_grants>("max-persistent-grants"),
    field<BackPolicy, &BackPolicy::pools>("pools"),
    field<BackPolicy, &BackPolicy::polling>("polling"),
};
constexpr std::array kHostFields = {field<HostPolicy, &HostPolicy::grant_locks>("grant-locks")};

std::string names_for(PolicyEnd end) {
  std::vector<std::string_view> names;
  for (const PolicyKey& key : kPolicies) {
    if (key.applies_to(end)) names.push_back(key.name);
  }
  return fmt::format("{}", fmt::join(names, ", "));
}

template <class Policy>
Result<Policy> parse(PolicyEnd end, std::span<const Field<Policy>> fields, const PolicyMap& entries) {
  const std::string_view reconnect = keys::kPolicyReconnect.substr(keys::kPolicyDirectory.size() + 1);
  Policy policy;
  for (const auto& [name, text] : entries) {
    if (name == reconnect) continue;
    const auto field = std::ranges::find(fields, std::string_view(name), &Field<Policy>::name);
    if (field == fields.end()) {
      return fail(EINVAL, fmt::format("{} = {}: not a policy of the {} end; those are {}",
                                      keys::policy_key(quoted(name)), quoted(text), to_string(end), names_for(end)));
    }
    const auto value = parse_policy_value(*find_policy(name), text);
    if (!value) return tl::make_unexpected(value.error());
    field->set(policy, *value);
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
