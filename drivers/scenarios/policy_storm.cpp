#include "drivers/scenarios/policy_storm.hpp"

#include <algorithm>
#include <string>

#include "drivers/scenarios/interop_matrix.hpp"

namespace xblk::scenarios {
namespace {

void set(PolicyPair& pair, const PolicyFactor& factor, std::uint64_t value) {
  auto& policies = factor.end == blkif::PolicyEnd::front ? pair.front : pair.back;
  policies[std::string(factor.key->name)] = blkif::print_policy_value(*factor.key, value);
}

std::vector<PolicyFactor> factors_of_devices() {
  auto factors = policy_factors();
  std::erase_if(factors, [](const PolicyFactor& factor) { return factor.end == blkif::PolicyEnd::host; });
  return factors;
}

}  // namespace

void change_policies(PolicyPair& pair, Prng& random) {
  const auto factors = factors_of_devices();
  for (std::uint64_t i = 0, n = 1 + random.below(3); i < n; ++i) {
    const PolicyFactor& factor = factors[random.below(factors.size())];
    set(pair, factor, factor.values[random.below(factor.values.size())]);
  }
}

void set_defaults(PolicyPair& pair) {
  for (const PolicyFactor& factor : factors_of_devices()) set(pair, factor, factor.values.front());
}

blkif::PolicyMap agreement_of(const PolicyPair& pair) {
  const auto front = blkif::parse_front_policy(pair.front).value();
  const auto back = blkif::parse_back_policy(pair.back).value();
  return {{"persistent", front.persistent && back.persistent ? "1" : "0"},
          {"queues", std::to_string(std::min(front.queues, back.queues))},
          {"ring-page-order", std::to_string(std::min(front.ring_page_order, back.ring_page_order))},
          {"ordering", blkif::to_keys(back).at("ordering")},
          {"discard", blkif::to_keys(back).at("discard")}};
}

}  // namespace xblk::scenarios
