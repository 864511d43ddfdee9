// Is this output a measurement? Only then may its numbers be shown (architecture: a measurement counts only if proven).
#pragma once

#include <optional>
#include <set>
#include <string>

#include "agent/fio/result.hpp"
#include "agent/host/process.hpp"

namespace xblk::fio {

struct Expectation {
  std::set<Way> ways = {};               // directions that must have I/O
  std::optional<Nanos> runtime = {};     // time-based jobs only, without ramp_time
  unsigned iodepth = 1;                  // per job
  unsigned jobs = 1;                     // entries without group_reporting
  std::optional<Bytes> block_size = {};  // when it is one fixed size
};

enum class Outcome {
  kOk,
  kFailed,        // nothing was measured
  kInconclusive,  // something was measured, but not what was asked
};

struct Verdict {
  Outcome outcome = Outcome::kOk;
  std::string reason = {};  // one line; empty when ok
};

Verdict judge(const host::ExitStatus& exit, const FioResult& result, const Expectation& expectation);

}  // namespace xblk::fio
