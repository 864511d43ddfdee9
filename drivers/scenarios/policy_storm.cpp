#include "drivers/scenarios/policy_storm.hpp"

#include <algorithm>
#include <string>

#include "drivers/blkif/wire.hpp"
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

blkif::PolicyMap frontend_agreement(const PolicyPair& pair) {
  const auto front = blkif::parse_front_policy(pair.front).value();
  const auto back = blkif::parse_back_policy(pair.back).value();
  const std::uint64_t indirect = std::min(front.indirect_segments, back.indirect_segments);
  return {{"persistent", front.persistent && back.persistent ? "1" : "0"},
          {"queues", std::to_string(std::min(front.queues, back.queues))},
          {"ring-page-order", std::to_string(std::min(front.ring_page_order, back.ring_page_order))},
          {"indirect-segments", std::to_string(indirect > blkif::kDirectSegmentsMax ? indirect : 0)}};
}

// Of indirect requests it knows what it offered, not what became of it.
blkif::PolicyMap backend_agreement(const PolicyPair& pair) {
  auto agreement = frontend_agreement(pair);
  const auto own = blkif::to_keys(blkif::parse_back_policy(pair.back).value());
  for (const char* policy : {"indirect-segments", "ordering", "discard", "unmap-batch", "final-check"}) {
    agreement[policy] = own.at(policy);
  }
  return agreement;
}

}  // namespace xblk::scenarios
