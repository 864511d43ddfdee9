// What all renderers take from the results in the same way: which parameters differ, which figures exist, their names.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "agent/report/results.hpp"

namespace xblk::report {

// Parameters that differ between the points stand in columns; the others are said once. When too many differ for
// columns, as where each point changes another policy, one column says what a point has otherwise than most.
struct SplitParams {
  std::vector<std::string> varying;
  Params common;
  Params usual;  // what most points have of the varying ones; empty: each has a column
};
SplitParams split_params(const std::vector<Params>& points);
inline constexpr std::size_t kVaryingColumnsMax = 5;

// What names a point in a table: titles, and one point's cells.
std::vector<std::string> label_columns(const SplitParams& split);
std::vector<std::string> label_cells(const Params& params, const SplitParams& split);
// In one text: "queues=1 persistent=on"; "all" if nothing varies.
std::string label_of(const Params& params, const SplitParams& split);
std::vector<Params> params_of(const Results& results);
std::string value_of(const Params& params, const std::string& name);  // "-" when absent
std::string join_params(const Params& params);                        // "guests=2 rw=randread"
// As label_of(); the id if none varies.
std::string point_label(const PointResult& point, const SplitParams& split);

// "398.1 k .. 405.2 k"; below five repeats the lowest and highest value, in brackets; "-" without a value.
std::string iops_spread(const PointResult& point);

// Directions in which at least one point has latencies; median of a statistic as text, "-" when absent.
std::vector<std::string_view> measured_directions(const Results& results);
std::string latency_text(const PointResult& point, std::string_view direction, std::string_view statistic);

// Mechanism figures that at least one point has, in the order of mechanism.hpp, then those it does not know.
std::vector<std::string> measured_mechanisms(const Results& results);
std::string mechanism_label(const std::string& name);

std::string metric_title(std::string_view metric);  // "read_latency_p99_ns" -> "read p99"

}  // namespace xblk::report
