// Is the new measurement slower than the base? Point by point, with a verdict that a pipeline can act on.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "agent/report/results.hpp"
#include "agent/stats/stats.hpp"

namespace xblk::report {

// improvement and unchanged pass; inconclusive: an effect above the threshold may exist, but was not shown;
// not_comparable: the two were not measured in the same way, or one of them is no measurement.
enum class Verdict { unchanged, improvement, regression, inconclusive, not_comparable };
std::string_view to_string(Verdict verdict);
int exit_code(Verdict verdict);  // 0 pass, 1 regression, 3 inconclusive or not comparable

// Compares points that differ in one parameter only: "persistent=on:off" takes `on` as base and `off` as new.
struct ByParameter {
  std::string name;
  std::string base;
  std::string candidate;
};
Result<ByParameter> parse_by_parameter(const std::string& text);

struct CompareOptions {
  double threshold = 0.05;    // effects up to this are of no interest
  bool gate_latency = false;  // whether p99 latency takes part in the verdict; IOPS always do
  std::optional<ByParameter> by;
};

// Fewer repeats than this never give a verdict on an effect: with 3 against 3, complete separation has a chance of
// 1 in 20 if there is no effect; with 2 against 2 it is 1 in 6.
inline constexpr std::size_t kRepeatsForVerdict = 3;

struct MetricComparison {
  std::string metric;  // "iops", "read_latency_p99_ns"
  bool higher_is_better = true;
  bool gates = true;  // takes part in the point's verdict
  std::vector<double> base;
  std::vector<double> candidate;
  double base_median = 0;
  double candidate_median = 0;
  double ratio = 1;                         // candidate_median / base_median
  std::optional<stats::Interval> interval;  // of the ratio, 95 %; from 5 repeats on each side
  std::optional<double> p_adjusted;         // Mann-Whitney, Holm over the points; information, not part of the gate
  Verdict verdict = Verdict::inconclusive;
  std::string reason;
};

struct PointComparison {
  std::string id;  // of the base point, or of the only one
  Params params;   // that both have
  Verdict verdict = Verdict::inconclusive;
  std::string reason;
  std::vector<MetricComparison> metrics;
};

struct Comparison {
  std::string base_name;
  std::string candidate_name;
  CompareOptions options;
  Verdict verdict = Verdict::not_comparable;
  std::string reason;              // of the verdict as a whole
  std::vector<std::string> notes;  // differences between the hosts
  std::vector<PointComparison> points;
};

// The verdict on one metric. From 5 repeats on each side: an effect is shown if the interval of the ratio excludes 1.
// With 3 or 4: if all values of one side lie beyond all of the other. Then
//   effect within the threshold -> unchanged; beyond and shown -> regression or improvement; else inconclusive.
MetricComparison compare_metric(std::string metric, bool higher_is_better, std::vector<double> base,
                                std::vector<double> candidate, double threshold);

// `base` and `candidate` may be the same results when options.by is set. An error is a mistake of the caller: a
// parameter or value that no point has.
Result<Comparison> compare(const Results& base, const Results& candidate, const CompareOptions& options);

std::string render_text(const Comparison& comparison, bool colour);
Json to_json(const Comparison& comparison);
std::string render_junit(const Comparison& comparison);

}  // namespace xblk::report
