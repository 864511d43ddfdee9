// The tables of the HTML report that carry verdicts.
#include <fmt/format.h>

#include "agent/report/format.hpp"
#include "agent/report/html_parts.hpp"

namespace xblk::report::html {

std::string cell(const std::string& text, bool right) {
  return fmt::format("<td{}>{}</td>", right ? " class=\"num\"" : "", escape_xml(text));
}

std::string header_row(const std::vector<Table::Column>& columns) {
  std::string out = "<thead><tr>";
  for (const auto& column : columns) {
    out += fmt::format("<th{}>{}</th>", column.right ? " class=\"num\"" : "", escape_xml(column.title));
  }
  return out + "</tr></thead>\n";
}

std::string chip(std::string_view text, std::string_view tone) {
  return fmt::format("<span class=\"chip {}\">{}</span>", tone, escape_xml(text));
}

std::string_view tone_of(Outcome outcome) {
  return outcome == Outcome::ok ? "good" : outcome == Outcome::failed ? "bad" : "unsure";
}

std::string_view tone_of(Verdict verdict) {
  switch (verdict) {
    case Verdict::unchanged:
      return "soft";
    case Verdict::improvement:
      return "good";
    case Verdict::regression:
      return "bad";
    case Verdict::inconclusive:
    case Verdict::not_comparable:
      return "unsure";
  }
  return "unsure";
}

std::string results_table(const Results& results, const SplitParams& split) {
  std::vector<Table::Column> columns = {{"status"}};
  for (const std::string& name : label_columns(split)) columns.push_back({name, true});
  columns.insert(columns.end(), {{"IOPS", true}, {"95 % interval, (range)", true}, {"bandwidth", true}});
  const auto directions = measured_directions(results);
  for (const std::string_view direction : directions) {
    for (const char* statistic : {"p50", "p99"}) columns.push_back({fmt::format("{} {}", direction, statistic), true});
  }
  std::string out = "<h2>Results</h2>\n";
  out += "<p class=\"soft\">All points: " + escape_xml(join_params(split.common)) + "</p>\n";
  out += "<div class=\"scroll\"><table>\n" + header_row(columns) + "<tbody>\n";
  for (const PointResult& point : results.points) {
    out += "<tr><td>" + chip(to_string(point.status), tone_of(point.status)) + "</td>";
    for (const std::string& text : label_cells(point.params, split)) out += cell(text, true);
    out += cell(point.iops ? human_iops(point.iops->median) : "-", true) + cell(iops_spread(point), true);
    out += cell(point.bandwidth_bytes_per_s ? human_bandwidth(point.bandwidth_bytes_per_s->median) : "-", true);
    for (const std::string_view direction : directions) {
      for (const char* statistic : {"p50", "p99"}) out += cell(latency_text(point, direction, statistic), true);
    }
    out += "</tr>\n";
    if (point.status != Outcome::ok) {
      out += fmt::format("<tr><td></td><td class=\"wrap {}\" colspan=\"{}\">{}</td></tr>\n", tone_of(point.status),
                         columns.size() - 1, escape_xml(point.reason));
    }
  }
  return out + "</tbody></table></div>\n";
}

namespace {

std::string metric_row(const std::string& label, const MetricComparison& metric) {
  const std::string interval =
      metric.interval ? fmt::format("{:.3f} .. {:.3f}", metric.interval->low, metric.interval->high) : "-";
  std::string out =
      "<tr><td>" + chip(to_string(metric.verdict), metric.gates ? tone_of(metric.verdict) : "soft") + "</td>";
  out += cell(label) + cell(metric_title(metric.metric)) + cell(human_metric(metric.metric, metric.base_median), true);
  out += cell(human_metric(metric.metric, metric.candidate_median), true) +
         cell(fmt::format("{:.3f}", metric.ratio), true);
  return out + cell(interval, true) + fmt::format("<td class=\"wrap\">{}</td></tr>\n", escape_xml(metric.reason));
}

std::string comparison_rows(const PointComparison& point, const std::string& label) {
  if (point.metrics.empty()) {
    return fmt::format("<tr><td>{}</td>{}<td class=\"wrap\" colspan=\"6\">{}</td></tr>\n",
                       chip(to_string(point.verdict), tone_of(point.verdict)), cell(label), escape_xml(point.reason));
  }
  std::string out;
  for (const MetricComparison& metric : point.metrics) out += metric_row(label, metric);
  return out;
}

}  // namespace

std::string comparison_table(const Comparison& comparison) {
  std::string out = "<h2>Comparison</h2>\n<p>" + chip(to_string(comparison.verdict), tone_of(comparison.verdict)) +
                    " " + escape_xml(comparison.reason) + "</p>\n";
  out += fmt::format(
      "<p class=\"soft\">base: {}<br>new: {}<br>Effects up to {:.0f} % do not count. Grey verdicts are "
      "for information and do not gate.</p>\n",
      escape_xml(comparison.base_name), escape_xml(comparison.candidate_name), comparison.options.threshold * 100);
  for (const std::string& note : comparison.notes) out += "<p class=\"unsure\">" + escape_xml(note) + "</p>\n";
  if (comparison.points.empty()) return out;
  std::vector<Params> params;
  for (const PointComparison& point : comparison.points) params.push_back(point.params);
  const SplitParams split = split_params(params);
  out += "<div class=\"scroll\"><table>\n" +
         header_row({{"verdict"},
                     {"point"},
                     {"metric"},
                     {"base", true},
                     {"new", true},
                     {"new/base", true},
                     {"95 % interval", true},
                     {"why"}}) +
         "<tbody>\n";
  for (const PointComparison& point : comparison.points) {
    out += comparison_rows(point, label_of(point.params, split));
  }
  return out + "</tbody></table></div>\n";
}

}  // namespace xblk::report::html
