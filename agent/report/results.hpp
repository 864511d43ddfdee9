// results.json: everything one run found out, versioned. Schema: profiles/schema/results.schema.json.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "drivers/base/result.hpp"

namespace xblk::report {

using Json = nlohmann::ordered_json;

inline constexpr std::string_view kResultsFormat = "xblk-results";
inline constexpr int kResultsVersion = 1;

// `ok` is a proven measurement; `failed` ran and was wrong, or did not run; `inconclusive` ran but was not proven.
enum class Outcome { ok, failed, inconclusive };
std::string_view to_string(Outcome outcome);

// Parameter name -> canonical value, in the order of the matrix.
using Params = std::vector<std::pair<std::string, std::string>>;

// Statistic -> nanoseconds; an absent statistic is absent, never 0 (fio omits percentiles of a direction without I/O).
inline constexpr std::string_view kLatencyStatistics[] = {"mean", "min", "max", "p50", "p90", "p99", "p99.9"};
inline constexpr std::string_view kDirections[] = {"read", "write", "trim"};
using LatencyStatistics = std::map<std::string, double>;
using Latency = std::map<std::string, LatencyStatistics>;  // direction -> statistics

using Mechanism = std::map<std::string, std::optional<double>>;  // names: mechanism.hpp; null: could not be measured

// One fio start of one point, after its own reconnect.
struct Repeat {
  std::size_t index = 0;           // 0 .. repeats - 1
  std::size_t order_position = 0;  // place in the order of the whole run
  std::size_t sitting = 0;         // of RunInfo::sittings
  bool interrupted = false;        // ended while the run was asked to end: says nothing, and is done again on resume
  Outcome status = Outcome::inconclusive;
  std::string reason;  // one line; empty when ok
  std::optional<double> iops;
  std::optional<double> bandwidth_bytes_per_s;
  Latency latency_ns;
  Mechanism mechanism;
  Json negotiated = Json::object();       // {"front": {key: value}, "back": {...}}
  std::vector<std::string> fio_commands;  // one per guest
  std::vector<std::string> raw_files;     // relative to the directory of the run
  Json proof = Json::object();            // what was checked, and what was seen
};

// A figure over the ok repeats. Below stats::kRepeatsForInterval repeats there is no interval.
struct Aggregate {
  double median = 0;
  std::optional<double> low;
  std::optional<double> high;
  std::size_t n = 0;
  std::string method;  // how low and high were found
};

struct PointResult {
  std::string id;
  Params params;
  Outcome status = Outcome::inconclusive;
  std::string reason;
  std::vector<Repeat> repeats;

  std::optional<Aggregate> iops;
  std::optional<Aggregate> bandwidth_bytes_per_s;
  std::map<std::string, std::map<std::string, Aggregate>> latency_ns;  // direction -> statistic
  std::map<std::string, Aggregate> mechanism;
  Json negotiated = Json::object();
  std::string fio_command;  // of the first guest; the others are in the repeats
};

// A run that was cut off and resumed has several: each one xblk process, hours or days after the one before.
struct Sitting {
  std::string started;  // ISO 8601, UTC
  std::string ended;    // empty: it was killed, or is at work
  std::string command_line;
  std::string xblk_version;
};

struct RunInfo {
  std::string id;
  std::string profile_name;
  std::string profile_text;  // verbatim
  std::string command_line;
  std::string started;  // ISO 8601, UTC
  std::string ended;
  std::string platform;  // emu | xen | model
  std::uint64_t seed = 0;
  std::string order;
  std::size_t repeats = 0;        // planned, of each point; 0: not recorded
  std::vector<Sitting> sittings;  // none: not recorded
  std::string xblk_version;
  std::string fio_version;
  Json fingerprint = Json::object();  // of the host, without its name
};

struct Results {
  RunInfo run;
  std::vector<PointResult> points;
};

// Fills status, reason and all aggregates of a point from its repeats. A point is ok only when all its repeats are.
void summarise(PointResult& point);

Json to_json(const Results& results);

// `source` names the file in errors, which also give the JSON pointer of the offending value.
Result<Results> from_json(std::string_view text, const std::string& source);
Result<Results> load_results(const std::string& path);

// The file appears complete or not at all, also after a power cut.
Status write_results(const std::string& path, const Results& results);

}  // namespace xblk::report
