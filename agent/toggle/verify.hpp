// Did the toggle take effect? Keys are offers; the result is what both ends publish, and what their counters show.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "agent/toggle/key_access.hpp"
#include "agent/toggle/vbd.hpp"
#include "drivers/base/statistics_file.hpp"

namespace xblk::toggle {

struct Check {
  std::string name;  // "back persistent", "queues with requests"
  std::string expected;
  std::string seen;  // "absent" when there is none
  bool ok = false;
};

struct Verification {
  std::vector<Check> checks;

  [[nodiscard]] bool ok() const;
  [[nodiscard]] std::string first_failure() const;  // one line; empty when ok
};

// What the two ends must agree on when these policies meet; what is not in `policies` has its default.
struct Agreement {
  bool persistent = false;
  std::uint32_t queues = 1;
  std::uint32_t ring_page_order = 0;
  std::uint32_t indirect_segments = 0;  // that the frontend uses; 0: a direct request holds as many
  blkif::FrontPolicy front;
  blkif::BackPolicy back;
};
Result<Agreement> agreement_of(const Policies& policies);

// Reads both ends' states and published results: every policy of the table that applies to the end.
Verification verify_keys(KeyAccess& keys, const Vbd& vbd, const Agreement& agreement);

// Published by one end; for the results.
Result<std::map<std::string, std::string>> negotiated(KeyAccess& keys, const std::string& directory);

// What is known about the I/O that was counted.
struct CountedLoad {
  std::uint32_t submitters = 1;     // fio jobs: each uses one queue
  std::optional<Bytes> block;       // of every I/O; nullopt: several
  bool store_answers_late = false;  // operations finish after they are submitted, one by one
};

// Two samples of each end, taken while I/O ran and warm: after the persistent cache had filled.
struct CounterProof {
  const StatisticsSample& front_begin;
  const StatisticsSample& front_end;
  const StatisticsSample& back_begin;
  const StatisticsSample& back_end;
  CountedLoad load = {};
};
// Wherever a counter can contradict a policy, it is asked. What only sometimes happens under a policy proves nothing by
// its absence, so most checks are of what must not happen.
Verification verify_counters(const Agreement& agreement, const CounterProof& proof);

}  // namespace xblk::toggle
