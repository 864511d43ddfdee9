#include "agent/report/compare.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include <fmt/format.h>

#include "agent/report/fingerprint.hpp"
#include "agent/report/format.hpp"
#include "agent/report/sittings.hpp"

namespace xblk::report {
namespace {

using Identity = std::map<std::string, std::string>;

bool separated(const std::vector<double>& base, const std::vector<double>& candidate) {
  const auto [base_min, base_max] = std::minmax_element(base.begin(), base.end());
  const auto [new_min, new_max] = std::minmax_element(candidate.begin(), candidate.end());
  return *new_max < *base_min || *new_min > *base_max;
}

// Sets verdict and reason of a metric whose values, medians and ratio are known.
void judge(MetricComparison& metric, double threshold) {
  const double effect = metric.ratio - 1;
  const bool worse = metric.higher_is_better ? effect < 0 : effect > 0;
  const std::size_t repeats = std::min(metric.base.size(), metric.candidate.size());
  if (repeats < kRepeatsForVerdict) {
    metric.verdict = Verdict::inconclusive;
    metric.reason = fmt::format("{} repeats a side; a verdict needs {}", repeats, kRepeatsForVerdict);
    return;
  }
  bool shown = false;
  if (metric.interval) {
    shown = metric.interval->low > 1 || metric.interval->high < 1;
    metric.reason = shown ? "the interval excludes 1" : "the interval includes 1";
  } else {
    shown = separated(metric.base, metric.candidate);
    metric.reason = !shown       ? "the ranges overlap"
                    : effect < 0 ? "every new value is below every base value"
                                 : "every new value is above every base value";
  }
  if (std::abs(effect) <= threshold) {
    metric.verdict = Verdict::unchanged;
    metric.reason = fmt::format("the effect is within {:.0f} %", threshold * 100);
  } else if (shown) {
    metric.verdict = worse ? Verdict::regression : Verdict::improvement;
  } else {
    metric.verdict = Verdict::inconclusive;
  }
}

// How much a verdict counts when many are made into one: a regression is reported even beside unclear points.
int weight(Verdict verdict) {
  switch (verdict) {
    case Verdict::unchanged:
      return 0;
    case Verdict::improvement:
      return 1;
    case Verdict::inconclusive:
      return 2;
    case Verdict::not_comparable:
      return 3;
    case Verdict::regression:
      return 4;
  }
  return 4;
}

std::vector<double> ok_values(const PointResult& point, auto get) {
  std::vector<double> values;
  for (const Repeat& repeat : point.repeats) {
    if (repeat.status != Outcome::ok) continue;
    const std::optional<double> value = get(repeat);
    if (value && std::isfinite(*value) && *value > 0) values.push_back(*value);
  }
  return values;
}

std::vector<double> latency_values(const PointResult& point, const std::string& direction) {
  return ok_values(point, [&](const Repeat& repeat) -> std::optional<double> {
    const auto statistics = repeat.latency_ns.find(direction);
    if (statistics == repeat.latency_ns.end()) return std::nullopt;
    const auto p99 = statistics->second.find("p99");
    return p99 == statistics->second.end() ? std::nullopt : std::optional(p99->second);
  });
}

// Names without the parameter that is compared.
Identity identity(const Params& params, const CompareOptions& options) {
  Identity out;
  for (const auto& [name, value] : params) {
    if (!options.by || name != options.by->name) out.emplace(name, value);
  }
  return out;
}

Params shared_params(const Params& params, const CompareOptions& options) {
  Params out;
  for (const auto& entry : params) {
    if (!options.by || entry.first != options.by->name) out.push_back(entry);
  }
  return out;
}

const std::string* param(const PointResult& point, const std::string& name) {
  for (const auto& [key, value] : point.params) {
    if (key == name) return &value;
  }
  return nullptr;
}

using Index = std::map<Identity, const PointResult*>;

// The points of one side by identity; with `by`, only those that have `value`.
Result<Index> index_points(const Results& results, const CompareOptions& options, const std::string& value) {
  Index index;
  std::set<std::string> seen;
  for (const PointResult& point : results.points) {
    if (options.by) {
      const std::string* own = param(point, options.by->name);
      if (own == nullptr) continue;
      seen.insert(*own);
      if (*own != value) continue;
    }
    index.emplace(identity(point.params, options), &point);
  }
  if (options.by && index.empty()) {
    if (seen.empty())
      return fail(EINVAL, "no point of " + results.run.id + " has a parameter '" + options.by->name + "'");
    return fail(EINVAL, fmt::format("no point of {} has {}={}; there are {}", results.run.id, options.by->name, value,
                                    fmt::join(seen, ", ")));
  }
  return index;
}

void compare_metrics(PointComparison& out, const PointResult& base, const PointResult& candidate,
                     const CompareOptions& options) {
  const auto iops = [](const Repeat& repeat) { return repeat.iops; };
  out.metrics.push_back(
      compare_metric("iops", true, ok_values(base, iops), ok_values(candidate, iops), options.threshold));
  for (const std::string_view direction : kDirections) {
    auto base_values = latency_values(base, std::string(direction));
    auto new_values = latency_values(candidate, std::string(direction));
    if (base_values.empty() || new_values.empty()) continue;
    auto metric = compare_metric(std::string(direction) + "_latency_p99_ns", false, std::move(base_values),
                                 std::move(new_values), options.threshold);
    metric.gates = options.gate_latency;
    out.metrics.push_back(std::move(metric));
  }
}

PointComparison compare_points(const PointResult& base, const PointResult& candidate, const CompareOptions& options) {
  PointComparison out;
  out.id = base.id;
  out.params = shared_params(base.params, options);
  for (const auto& [name, point] : {std::pair{"base", &base}, std::pair{"new", &candidate}}) {
    if (point->status == Outcome::ok) continue;
    out.verdict = Verdict::not_comparable;
    out.reason = fmt::format("{} is {}: {}", name, to_string(point->status), point->reason);
    return out;
  }
  compare_metrics(out, base, candidate, options);
  const MetricComparison* decisive = nullptr;
  for (const MetricComparison& metric : out.metrics) {
    if (!metric.gates) continue;
    if (decisive == nullptr || weight(metric.verdict) > weight(decisive->verdict)) decisive = &metric;
  }
  out.verdict = decisive->verdict;
  out.reason = decisive->reason;
  return out;
}

PointComparison only_in(const char* side, const PointResult& point, const CompareOptions& options) {
  PointComparison out;
  out.id = point.id;
  out.params = shared_params(point.params, options);
  out.verdict = Verdict::not_comparable;
  out.reason = std::string("only in ") + side;
  return out;
}

// What must be equal for two figures to mean the same thing; nullopt when it is.
std::optional<std::string> incomparable(const RunInfo& base, const RunInfo& candidate) {
  const auto differ = [](const char* what, const std::string& a, const std::string& b) {
    return fmt::format("{} differs: {} and {}", what, a, b);
  };
  if (base.platform != candidate.platform) return differ("the platform", base.platform, candidate.platform);
  if (base.fio_version != candidate.fio_version) {
    return differ("the version of fio", base.fio_version, candidate.fio_version);
  }
  return std::nullopt;
}

// Many points are many tests; the adjusted p says how surprising each is among all of them.
void adjust_p_values(std::vector<PointComparison>& points) {
  std::map<std::string, std::vector<MetricComparison*>> by_metric;
  for (PointComparison& point : points) {
    for (MetricComparison& metric : point.metrics) {
      if (metric.interval) by_metric[metric.metric].push_back(&metric);
    }
  }
  for (const auto& [name, metrics] : by_metric) {
    std::vector<double> p_values;
    for (const MetricComparison* metric : metrics) {
      p_values.push_back(stats::mann_whitney(metric->candidate, metric->base).p_two_sided);
    }
    const std::vector<double> adjusted = stats::holm(p_values);
    for (std::size_t i = 0; i < metrics.size(); ++i) metrics[i]->p_adjusted = adjusted[i];
  }
}

void conclude(Comparison& comparison) {
  std::map<Verdict, std::size_t> counts;
  comparison.verdict = comparison.points.empty() ? Verdict::not_comparable : Verdict::unchanged;
  for (const PointComparison& point : comparison.points) {
    ++counts[point.verdict];
    if (weight(point.verdict) > weight(comparison.verdict)) comparison.verdict = point.verdict;
  }
  comparison.reason = comparison.points.empty()
                          ? "there is nothing to compare"
                          : fmt::format("{} of {} points", counts[comparison.verdict], comparison.points.size());
}

}  // namespace

std::string_view to_string(Verdict verdict) {
  switch (verdict) {
    case Verdict::unchanged:
      return "unchanged";
    case Verdict::improvement:
      return "improvement";
    case Verdict::regression:
      return "regression";
    case Verdict::inconclusive:
      return "inconclusive";
    case Verdict::not_comparable:
      return "not comparable";
  }
  return "not comparable";
}

int exit_code(Verdict verdict) {
  switch (verdict) {
    case Verdict::unchanged:
    case Verdict::improvement:
      return 0;
    case Verdict::regression:
      return 1;
    case Verdict::inconclusive:
    case Verdict::not_comparable:
      return 3;
  }
  return 3;
}

Result<ByParameter> parse_by_parameter(const std::string& text) {
  const std::size_t equals = text.find('=');
  const std::size_t colon = equals == std::string::npos ? equals : text.find(':', equals);
  ByParameter by;
  if (colon != std::string::npos) {
    by = {text.substr(0, equals), text.substr(equals + 1, colon - equals - 1), text.substr(colon + 1)};
  }
  if (by.name.empty() || by.base.empty() || by.candidate.empty()) {
    return fail(EINVAL, "'" + text + "' is not PARAMETER=BASE:NEW, as in persistent=on:off");
  }
  if (by.base == by.candidate) return fail(EINVAL, "'" + text + "' compares a value with itself");
  return by;
}

MetricComparison compare_metric(std::string name, bool higher_is_better, std::vector<double> base,
                                std::vector<double> candidate, double threshold) {
  MetricComparison metric;
  metric.metric = std::move(name);
  metric.higher_is_better = higher_is_better;
  metric.base = std::move(base);
  metric.candidate = std::move(candidate);
  if (metric.base.empty() || metric.candidate.empty()) {
    metric.verdict = Verdict::not_comparable;
    metric.reason = metric.base.empty() ? "base has no value" : "new has no value";
    return metric;
  }
  metric.base_median = stats::median(metric.base);
  metric.candidate_median = stats::median(metric.candidate);
  metric.ratio = metric.candidate_median / metric.base_median;
  metric.interval = stats::bootstrap_ratio(metric.candidate, metric.base);
  judge(metric, threshold);
  return metric;
}

Result<Comparison> compare(const Results& base, const Results& candidate, const CompareOptions& options) {
  Comparison out;
  out.options = options;
  out.base_name = options.by ? base.run.id + " " + options.by->name + "=" + options.by->base : base.run.id;
  out.candidate_name =
      options.by ? candidate.run.id + " " + options.by->name + "=" + options.by->candidate : candidate.run.id;
  for (const std::string& difference : fingerprint_differences(base.run.fingerprint, candidate.run.fingerprint)) {
    out.notes.push_back("hosts differ in " + difference);
  }
  const auto note_run = [&](const char* side, const Results& results) {
    for (const std::string& note : run_notes(results)) out.notes.push_back(std::string(side) + ": " + note);
  };
  note_run("base", base);
  if (!options.by) note_run("new", candidate);  // otherwise the same run
  if (auto reason = incomparable(base.run, candidate.run)) {
    out.reason = std::move(*reason);
    return out;
  }
  const auto base_index = index_points(base, options, options.by ? options.by->base : "");
  if (!base_index) return tl::unexpected(base_index.error());
  const auto new_index = index_points(candidate, options, options.by ? options.by->candidate : "");
  if (!new_index) return tl::unexpected(new_index.error());

  // In the order of the files, not of the index, so that tables look like the matrix.
  std::size_t apart = 0;
  for (const PointResult& point : base.points) {
    const auto own = base_index->find(identity(point.params, options));
    if (own == base_index->end() || own->second != &point) continue;
    const auto other = new_index->find(own->first);
    out.points.push_back(other == new_index->end() ? only_in("base", point, options)
                                                   : compare_points(point, *other->second, options));
    if (options.by && other != new_index->end() && in_different_sittings(point, *other->second)) ++apart;
  }
  for (const PointResult& point : candidate.points) {
    const auto own = new_index->find(identity(point.params, options));
    if (own == new_index->end() || own->second != &point || base_index->contains(own->first)) continue;
    out.points.push_back(only_in("new", point, options));
  }
  if (apart > 0) {
    out.notes.push_back(fmt::format(
        "{} pairs were measured in different sittings: a change of the machine between them would look like an effect",
        apart));
  }
  adjust_p_values(out.points);
  conclude(out);
  return out;
}

}  // namespace xblk::report
