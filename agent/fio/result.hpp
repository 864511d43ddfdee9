// What fio reported, read without trust in its form: see README.md for the inputs that break naive readers.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "agent/fio/latency.hpp"
#include "agent/fio/version.hpp"
#include "drivers/base/units.hpp"

namespace xblk::fio {

struct Direction {
  std::uint64_t io_bytes = 0;
  std::uint64_t total_ios = 0;
  std::uint64_t runtime_ms = 0;
  Latency latency;             // from submission to completion (lat_ns)
  Latency completion_latency;  // from the engine's queue() on (clat_ns); where fio puts percentiles by default

  // From the two exact numbers; fio's sampled fields (iops_mean, bw_agg, ...) overflow and are garbage on short runs.
  [[nodiscard]] double iops() const;
  [[nodiscard]] double bandwidth_bytes_per_s() const;
};

enum class Way { kRead, kWrite, kTrim };
inline constexpr Way kWays[] = {Way::kRead, Way::kWrite, Way::kTrim};
std::string_view name(Way way);

using Options = std::vector<std::pair<std::string, std::string>>;  // in fio's order, repeated keys repeated

struct Job {
  std::string name;
  int error = 0;                                // errno
  std::map<Way, Direction> directions;          // a direction that fio did not report is absent
  std::optional<Direction> mixed;               // unified_rw_reporting
  std::map<std::string, double> iodepth_level;  // "1", "2", ... ">=64" -> percent of I/Os
  bool steady_state_attained = false;
  Options options;
};

// Oddities that are tolerated, and recorded with the result.
struct IntakeFlags {
  bool duplicate_keys = false;
  bool control_characters = false;
  bool invalid_utf8 = false;
  bool non_finite_numbers = false;
  bool several_documents = false;  // status reports: each is cumulative, the last one counts
  bool all_clients_dropped = false;
  bool client_mode = false;
};

struct FioResult {
  std::optional<Version> version;
  std::vector<Job> jobs;
  Options global_options;
  std::vector<std::string> diagnostics;  // what fio said outside its JSON
  std::vector<std::string> problems;     // why this cannot be a result; one line each
  IntakeFlags flags;
  nlohmann::json document;  // the last one, repaired; null when there is none

  // Sum over jobs: I/Os over the longest runtime, latencies merged. Empty when no job reports this direction.
  [[nodiscard]] std::optional<Direction> sum(Way way) const;
};

inline constexpr std::size_t kMaxOutputBytes = std::size_t{64} << 20;

// `output` is what fio wrote to --output=FILE. `standard_output` stands in for it when fio could not create the file,
// and both remaining streams are kept as diagnostics. Never fails: what is wrong becomes a problem for judge().
FioResult read_result(std::string_view output, std::string_view standard_output = {},
                      std::string_view standard_error = {});

}  // namespace xblk::fio
