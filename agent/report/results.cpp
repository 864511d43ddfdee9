#include "agent/report/results.hpp"

#include <algorithm>
#include <cmath>
#include <set>

#include "agent/stats/stats.hpp"

namespace xblk::report {
namespace {

Aggregate aggregate(const std::vector<double>& values) {
  Aggregate result;
  result.n = values.size();
  result.median = stats::median(values);
  if (const auto interval = stats::bootstrap_median(values)) {
    result.low = interval->low;
    result.high = interval->high;
    result.method = "median, 95% percentile bootstrap";
  } else {
    result.method = "median, no interval below 5 repeats";
  }
  return result;
}

void append(std::vector<double>& values, std::optional<double> value) {
  if (value && std::isfinite(*value)) values.push_back(*value);
}

// Collects one figure over the ok repeats; absent when no repeat has it.
template <class Get>
std::optional<Aggregate> aggregate_over(const std::vector<Repeat>& repeats, Get get) {
  std::vector<double> values;
  for (const Repeat& repeat : repeats) {
    if (repeat.status == Outcome::ok) append(values, get(repeat));
  }
  if (values.empty()) return std::nullopt;
  return aggregate(values);
}

void aggregate_latency(PointResult& point) {
  point.latency_ns.clear();
  for (const std::string_view direction : kDirections) {
    for (const std::string_view statistic : kLatencyStatistics) {
      const auto found = aggregate_over(point.repeats, [&](const Repeat& repeat) -> std::optional<double> {
        const auto by_direction = repeat.latency_ns.find(std::string(direction));
        if (by_direction == repeat.latency_ns.end()) return std::nullopt;
        const auto value = by_direction->second.find(std::string(statistic));
        return value == by_direction->second.end() ? std::nullopt : std::optional(value->second);
      });
      if (found) point.latency_ns[std::string(direction)][std::string(statistic)] = *found;
    }
  }
}

void aggregate_mechanism(PointResult& point) {
  std::set<std::string> names;
  for (const Repeat& repeat : point.repeats) {
    for (const auto& [name, unused] : repeat.mechanism) names.insert(name);
  }
  point.mechanism.clear();
  for (const std::string& name : names) {
    const auto found = aggregate_over(point.repeats, [&](const Repeat& repeat) -> std::optional<double> {
      const auto value = repeat.mechanism.find(name);
      return value == repeat.mechanism.end() ? std::nullopt : value->second;
    });
    if (found) point.mechanism[name] = *found;
  }
}

void judge(PointResult& point) {
  point.status = Outcome::ok;
  point.reason.clear();
  if (point.repeats.empty()) {
    point.status = Outcome::inconclusive;
    point.reason = "no repeat ran";
    return;
  }
  for (const Outcome worst : {Outcome::failed, Outcome::inconclusive}) {
    for (const Repeat& repeat : point.repeats) {
      if (repeat.status != worst) continue;
      point.status = worst;
      point.reason = "repeat " + std::to_string(repeat.index) + ": " + repeat.reason;
      return;
    }
  }
}

}  // namespace

std::string_view to_string(Outcome outcome) {
  switch (outcome) {
    case Outcome::ok:
      return "ok";
    case Outcome::failed:
      return "failed";
    case Outcome::inconclusive:
      return "inconclusive";
  }
  return "inconclusive";
}

void summarise(PointResult& point) {
  judge(point);
  point.iops = aggregate_over(point.repeats, [](const Repeat& repeat) { return repeat.iops; });
  point.bandwidth_bytes_per_s =
      aggregate_over(point.repeats, [](const Repeat& repeat) { return repeat.bandwidth_bytes_per_s; });
  aggregate_latency(point);
  aggregate_mechanism(point);
  if (point.repeats.empty()) return;
  auto shown = std::find_if(point.repeats.begin(), point.repeats.end(),
                            [](const Repeat& repeat) { return repeat.status == Outcome::ok; });
  if (shown == point.repeats.end()) shown = point.repeats.begin();
  point.negotiated = shown->negotiated;
  if (!shown->fio_commands.empty()) point.fio_command = shown->fio_commands.front();
}

}  // namespace xblk::report
