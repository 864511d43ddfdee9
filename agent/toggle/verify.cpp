#include "agent/toggle/verify.hpp"

#include <algorithm>
#include <span>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "agent/toggle/checklist.hpp"
#include "drivers/base/check.hpp"
#include "drivers/blkif/keys.hpp"
#include "drivers/blkif/wire.hpp"
#include "drivers/blkif/xenbus_state.hpp"

namespace xblk::toggle {
namespace {

using Published = std::map<std::string, std::string>;

std::string seen_in(const Published& published, const std::string& name) {
  const auto it = published.find(name);
  return it == published.end() ? "absent" : it->second;
}

// What both ends state alike: the result of the two.
Published shared_result(const Agreement& agreement) {
  return {{"persistent", agreement.persistent ? "1" : "0"},
          {"queues", std::to_string(agreement.queues)},
          {"ring-page-order", std::to_string(agreement.ring_page_order)}};
}

Published expected_of_front(const Agreement& agreement) {
  Published expected = blkif::to_keys(agreement.front);
  for (const auto& [name, value] : shared_result(agreement)) expected[name] = value;
  expected["indirect-segments"] = std::to_string(agreement.indirect_segments);
  return expected;
}

Published expected_of_back(const Agreement& agreement) {
  Published expected = blkif::to_keys(agreement.back);
  for (const auto& [name, value] : shared_result(agreement)) expected[name] = value;
  if (agreement.persistent) expected["data-path"] = "persistent";
  return expected;
}

// Words of a policy that the result may be when the store can do less than the policy offers.
std::vector<std::string_view> words_down_to(std::string_view policy, std::size_t word, std::size_t lowest) {
  const auto words = blkif::find_policy(policy)->words;
  std::vector<std::string_view> out{words[word]};
  for (std::size_t i = lowest; i < words.size() && i < word; ++i) out.push_back(words[i]);
  return out;
}

// The frontend says what became of the backend's offers. A store without a cache to flush, or that cannot discard, or
// not securely, makes them less; it never makes them more.
void check_offers(Checklist& list, const Published& front, const Agreement& agreement) {
  const auto check = [&](const std::string& policy, const std::vector<std::string_view>& allowed) {
    const std::string seen = seen_in(front, policy);
    const bool ok = std::find(allowed.begin(), allowed.end(), seen) != allowed.end();
    list.that("front " + policy, fmt::format("{}", fmt::join(allowed, " or ")), seen, ok);
  };
  const auto ordering = static_cast<std::size_t>(agreement.back.ordering);
  std::vector<std::string_view> orderings = words_down_to("ordering", ordering, ordering);
  if (agreement.back.ordering != blkif::Ordering::none)
    orderings.emplace_back("none");  // both or none of what is offered
  check("ordering", orderings);
  check("discard", words_down_to("discard", static_cast<std::size_t>(agreement.back.discard), 0));
}

}  // namespace

bool Verification::ok() const {
  return std::all_of(checks.begin(), checks.end(), [](const Check& check) { return check.ok; });
}

std::string Verification::first_failure() const {
  const auto it = std::find_if(checks.begin(), checks.end(), [](const Check& check) { return !check.ok; });
  if (it == checks.end()) return "";
  return fmt::format("{}: expected {}, seen {}", it->name, it->expected, it->seen);
}

Result<Agreement> agreement_of(const Policies& policies) {
  auto front = blkif::parse_front_policy(policies.front);
  if (!front) return tl::unexpected(front.error());
  auto back = blkif::parse_back_policy(policies.back);
  if (!back) return tl::unexpected(back.error());
  const std::uint32_t indirect = std::min(front->indirect_segments, back->indirect_segments);
  return Agreement{.persistent = front->persistent && back->persistent,
                   .queues = std::min(front->queues, back->queues),
                   .ring_page_order = std::min(front->ring_page_order, back->ring_page_order),
                   .indirect_segments = indirect > blkif::kDirectSegmentsMax ? indirect : 0,
                   .front = *front,
                   .back = *back};
}

Result<Published> negotiated(KeyAccess& keys, const std::string& directory) {
  return keys.read_tree(fmt::format("{}/{}", directory, blkif::keys::kNegotiatedDirectory));
}

Verification verify_keys(KeyAccess& keys, const Vbd& vbd, const Agreement& agreement) {
  Checklist list;
  const std::string connected(blkif::xenbus_state_key(blkif::XenbusState::connected));
  const auto check_end = [&](const std::string& end, const std::string& directory, const Published& expected) {
    list.equal(end + " state", connected, keys.read(directory + "/state").value_or("absent"));
    Published published = negotiated(keys, directory).value_or(Published{});
    for (const auto& [name, value] : expected) list.equal(end + " " + name, value, seen_in(published, name));
    return published;
  };
  const auto front = check_end("front", vbd.frontend_directory(), expected_of_front(agreement));
  check_end("back", vbd.backend_directory(), expected_of_back(agreement));
  check_offers(list, front, agreement);
  return list.take();
}

}  // namespace xblk::toggle
