// A comparison for people (text), for programs (JSON) and for pipelines (JUnit).
#include <fmt/format.h>

#include "agent/report/compare.hpp"
#include "agent/report/figures.hpp"
#include "agent/report/format.hpp"
#include "agent/report/junit.hpp"
#include "agent/report/table.hpp"

namespace xblk::report {
namespace {

constexpr std::size_t kVerdictColumn = 0;

std::string paint_verdict(const Table& table, std::size_t row, std::size_t column, const std::string& text) {
  if (column != kVerdictColumn) return text;
  const std::string& verdict = table.rows[row][column];
  const char* colour = verdict == to_string(Verdict::regression)    ? "\x1b[31m"
                       : verdict == to_string(Verdict::improvement) ? "\x1b[32m"
                       : verdict == to_string(Verdict::unchanged)   ? ""
                                                                    : "\x1b[33m";
  return *colour == '\0' ? text : colour + text + "\x1b[0m";
}

std::string raw_values(const MetricComparison& metric, const std::vector<double>& values) {
  std::string out;
  for (const double value : values) out += (out.empty() ? "" : ", ") + human_metric(metric.metric, value);
  return out;
}

std::vector<Params> all_params(const Comparison& comparison) {
  std::vector<Params> out;
  for (const PointComparison& point : comparison.points) out.push_back(point.params);
  return out;
}

void add_rows(Table& table, const PointComparison& point, const SplitParams& split) {
  std::vector<std::string> head;
  for (const std::string& cell : label_cells(point.params, split)) head.push_back(printable(cell));
  if (point.metrics.empty()) {
    std::vector<std::string> row = {std::string(to_string(point.verdict))};
    row.insert(row.end(), head.begin(), head.end());
    row.insert(row.end(), {"", "", "", "", "", printable(point.reason)});
    table.rows.push_back(std::move(row));
    return;
  }
  for (const MetricComparison& metric : point.metrics) {
    std::vector<std::string> row = {metric.gates ? std::string(to_string(metric.verdict))
                                                 : fmt::format("({})", to_string(metric.verdict))};
    row.insert(row.end(), head.begin(), head.end());
    row.push_back(metric_title(metric.metric));
    row.push_back(human_metric(metric.metric, metric.base_median));
    row.push_back(human_metric(metric.metric, metric.candidate_median));
    row.push_back(fmt::format("{:.3f}", metric.ratio));
    row.push_back(metric.interval ? fmt::format("{:.3f} .. {:.3f}", metric.interval->low, metric.interval->high) : "-");
    row.push_back(metric.reason);
    table.rows.push_back(std::move(row));
  }
}

std::string render_points(const Comparison& comparison, bool colour) {
  const SplitParams split = split_params(all_params(comparison));
  Table table;
  table.columns.push_back({"verdict"});
  for (const std::string& name : label_columns(split)) table.columns.push_back({printable(name), true});
  table.columns.insert(
      table.columns.end(),
      {{"metric"}, {"base", true}, {"new", true}, {"new/base", true}, {"95 % interval", true}, {"why"}});
  for (const PointComparison& point : comparison.points) add_rows(table, point, split);
  return "all points: " + printable(join_params(split.common)) + "\n\n" +
         render_table(table, colour ? paint_verdict : nullptr);
}

// Below five repeats there is no interval, so the values themselves are shown.
std::string render_raw_values(const Comparison& comparison) {
  std::string out;
  for (const PointComparison& point : comparison.points) {
    for (const MetricComparison& metric : point.metrics) {
      if (metric.interval) continue;
      out += fmt::format("  {} {}: base {}; new {}\n", printable(point.id), metric_title(metric.metric),
                         raw_values(metric, metric.base), raw_values(metric, metric.candidate));
    }
  }
  return out.empty() ? out : "\nvalues where there are too few repeats for an interval:\n" + out;
}

Json metric_to_json(const MetricComparison& metric) {
  Json interval = nullptr;
  if (metric.interval) interval = {{"low", metric.interval->low}, {"high", metric.interval->high}};
  return {{"metric", metric.metric},
          {"verdict", to_string(metric.verdict)},
          {"gates", metric.gates},
          {"reason", metric.reason},
          {"base", {{"median", metric.base_median}, {"values", metric.base}}},
          {"new", {{"median", metric.candidate_median}, {"values", metric.candidate}}},
          {"ratio", metric.ratio},
          {"interval", std::move(interval)},
          {"p_adjusted", metric.p_adjusted ? Json(*metric.p_adjusted) : Json(nullptr)}};
}

JunitCase::State state_of(Verdict verdict) {
  switch (verdict) {
    case Verdict::unchanged:
    case Verdict::improvement:
      return JunitCase::State::passed;
    case Verdict::regression:
      return JunitCase::State::failed;
    case Verdict::inconclusive:
    case Verdict::not_comparable:
      return JunitCase::State::skipped;
  }
  return JunitCase::State::failed;
}

}  // namespace

std::string render_text(const Comparison& comparison, bool colour) {
  std::string out =
      fmt::format("base  {}\nnew   {}\n", printable(comparison.base_name), printable(comparison.candidate_name));
  for (const std::string& note : comparison.notes) out += "note  " + printable(note) + "\n";
  if (!comparison.points.empty()) out += render_points(comparison, colour) + render_raw_values(comparison);
  out += fmt::format("\n{}: {} (threshold {:.0f} %)\n", to_string(comparison.verdict), printable(comparison.reason),
                     comparison.options.threshold * 100);
  return out;
}

Json to_json(const Comparison& comparison) {
  Json points = Json::array();
  for (const PointComparison& point : comparison.points) {
    Json params = Json::object();
    for (const auto& [name, value] : point.params) params[name] = value;
    Json metrics = Json::array();
    for (const MetricComparison& metric : point.metrics) metrics.push_back(metric_to_json(metric));
    points.push_back({{"id", point.id},
                      {"params", std::move(params)},
                      {"verdict", to_string(point.verdict)},
                      {"reason", point.reason},
                      {"metrics", std::move(metrics)}});
  }
  return {{"format", "xblk-comparison"},
          {"version", 1},
          {"base", comparison.base_name},
          {"new", comparison.candidate_name},
          {"threshold", comparison.options.threshold},
          {"verdict", to_string(comparison.verdict)},
          {"reason", comparison.reason},
          {"exit_code", exit_code(comparison.verdict)},
          {"notes", comparison.notes},
          {"points", std::move(points)}};
}

std::string render_junit(const Comparison& comparison) {
  JunitSuite suite{"compare " + comparison.base_name + " with " + comparison.candidate_name, "", {}, {}};
  suite.properties.emplace_back("threshold", fmt::format("{}", comparison.options.threshold));
  for (std::size_t i = 0; i < comparison.notes.size(); ++i) {
    suite.properties.emplace_back("note." + std::to_string(i + 1), comparison.notes[i]);
  }
  // Without a single point the verdict would vanish from the report of the pipeline.
  if (comparison.points.empty()) {
    suite.cases.push_back({"comparison", state_of(comparison.verdict), comparison.reason, ""});
  }
  for (const PointComparison& point : comparison.points) {
    std::string output;
    for (const MetricComparison& metric : point.metrics) {
      output += fmt::format("{}{} base {} new {} ratio {:.3f} {}", output.empty() ? "" : "\n", metric.metric,
                            raw_values(metric, metric.base), raw_values(metric, metric.candidate), metric.ratio,
                            to_string(metric.verdict));
    }
    const std::string message = fmt::format("{}: {}", to_string(point.verdict), point.reason);
    suite.cases.push_back({point.id, state_of(point.verdict), message, std::move(output)});
  }
  return render_junit_suite(suite);
}

}  // namespace xblk::report
