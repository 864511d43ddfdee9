// The interop matrix: every policy of every end against every other one. It is generated from policy_keys(), so that a
// new policy is in it without an edit here; only an integer needs a line in the table of values.
#pragma once

#include <cstdint>
#include <ostream>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "drivers/base/counters.hpp"
#include "drivers/blkfront/block_device.hpp"
#include "drivers/blkif/policy.hpp"

namespace xblk::scenarios {

// One row: a pair of ends, the host under them and the store behind them.
struct Pairing {
  blkif::PolicyMap front;
  blkif::PolicyMap back;
  blkif::PolicyMap host;
  std::string store;
};
std::ostream& operator<<(std::ostream& out, const Pairing& pairing);

// A policy of one end, with the values that stand for all of it: each word, both booleans, the table's integers.
struct PolicyFactor {
  blkif::PolicyEnd end;
  const blkif::PolicyKey* key;
  std::vector<std::uint64_t> values;
};
// Of all ends. Presets are left out: they say nothing once every policy is set (preset_pairings()).
std::vector<PolicyFactor> policy_factors();
// Integer policies that the table of values forgot.
std::vector<std::string_view> integers_without_values();

// Any `strength` values of different policies, or of a policy and a store, meet in at least one row; the first row is
// everything at its default. Every policy is set in every row.
std::vector<Pairing> pairings(unsigned strength, std::span<const std::string> stores, std::uint64_t seed);
// Each two policies away from their defaults and nothing else: one row for each two values.
std::vector<Pairing> pairs_alone(const std::string& store);
// Every preset of the front end with every one of the back end.
std::vector<Pairing> preset_pairings(const std::string& store);

// What both ends must have agreed on.
void expect_agreement(const Pairing& pairing, const blkfront::DeviceInfo& info);
// What the counters of a device's whole life, from its first connect to after its disconnect, must say of the policies
// that were in force. Sums over all queues; without an error or a lack of capacity on the way.
void expect_mechanism(const Pairing& pairing, const QueueSample& front, const QueueSample& back);

}  // namespace xblk::scenarios
