// Did the toggle take effect? Keys are offers; the result is what both ends publish, and what their counters show.
#pragma once

#include <span>
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
  blkif::FrontPolicy front;
  blkif::BackPolicy back;
};
Result<Agreement> agreement_of(const Policies& policies);

// Reads both ends' states and published results.
Verification verify_keys(KeyAccess& keys, const Vbd& vbd, const Agreement& agreement);

// Published by one end; for the results.
Result<std::map<std::string, std::string>> negotiated(KeyAccess& keys, const std::string& directory);

// Two samples of each end, taken while I/O ran and warm: after the persistent cache had filled.
struct CounterProof {
  const StatisticsSample& front_begin;
  const StatisticsSample& front_end;
  const StatisticsSample& back_begin;
  const StatisticsSample& back_end;
  std::uint32_t submitters = 1;  // fio jobs: each uses one queue
};
Verification verify_counters(const Agreement& agreement, const CounterProof& proof);

}  // namespace xblk::toggle
