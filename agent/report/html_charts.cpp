// The charts of the HTML report.
#include <algorithm>

#include <fmt/format.h>

#include "agent/report/format.hpp"
#include "agent/report/html_parts.hpp"
#include "agent/report/mechanism.hpp"
#include "agent/report/svg_chart.hpp"

namespace xblk::report::html {
namespace {

constexpr int kChartWidth = 1030;
constexpr int kSmallChartWidth = 490;

const Aggregate* mechanism_of(const PointResult& point, const std::string& name) {
  const auto found = point.mechanism.find(name);
  return found == point.mechanism.end() ? nullptr : &found->second;
}

std::string mechanism_chart(const Results& results, const std::vector<std::string>& labels, const std::string& name) {
  BarChart chart;
  chart.title = mechanism_label(name) + " by point";
  chart.width = kSmallChartWidth;
  chart.label_width = label_width_of(labels);
  chart.format = [&](double value) { return human_mechanism(name, value); };
  for (std::size_t i = 0; i < results.points.size(); ++i) {
    BarChart::Row row{labels[i], {}, {}, {}, {}, i};
    if (const Aggregate* figure = mechanism_of(results.points[i], name)) {
      row.value = figure->median;
      row.low = figure->low;
      row.high = figure->high;
    }
    chart.rows.push_back(std::move(row));
  }
  return render_bar_chart(chart);
}

bool zero_everywhere(const Results& results, const std::string& name) {
  return std::all_of(results.points.begin(), results.points.end(), [&](const PointResult& point) {
    const Aggregate* figure = mechanism_of(point, name);
    return figure == nullptr || figure->median == 0;
  });
}

}  // namespace

std::string iops_chart(const Results& results, const std::vector<std::string>& labels) {
  BarChart chart;
  chart.title = "IOPS by point";
  chart.width = kChartWidth;
  chart.label_width = label_width_of(labels);
  chart.format = human_iops;
  for (std::size_t i = 0; i < results.points.size(); ++i) {
    const PointResult& point = results.points[i];
    BarChart::Row row;
    row.label = labels[i];
    row.series = i;
    if (point.iops) {
      row.value = point.iops->median;
      row.low = point.iops->low;
      row.high = point.iops->high;
    }
    for (const Repeat& repeat : point.repeats) {
      if (repeat.status == Outcome::ok && repeat.iops) row.dots.push_back(*repeat.iops);
    }
    chart.rows.push_back(std::move(row));
  }
  return "<h2>IOPS</h2>\n<p class=\"soft\">Bar: median of the repeats. Circles: single repeats. Whiskers: 95 % "
         "bootstrap "
         "interval of the median, from five repeats on.</p>\n" +
         render_bar_chart(chart);
}

std::string latency_charts(const Results& results, const std::vector<std::string>& labels) {
  std::string out =
      "<h2>Latency</h2>\n<p class=\"soft\">From left to right p50, p90, p99 and p99.9 of fio's total "
      "latency, each the median over the repeats; logarithmic axis.</p>\n";
  for (const std::string_view direction : measured_directions(results)) {
    PercentileChart chart;
    chart.title = fmt::format("{} latency percentiles by point", direction);
    chart.width = kChartWidth;
    chart.label_width = label_width_of(labels);
    chart.format = human_ns;
    for (std::size_t i = 0; i < results.points.size(); ++i) {
      PercentileChart::Row row{labels[i], {}, i};
      const auto& latency = results.points[i].latency_ns;
      if (const auto found = latency.find(std::string(direction)); found != latency.end()) {
        for (const char* statistic : {"p50", "p90", "p99", "p99.9"}) {
          const auto value = found->second.find(statistic);
          if (value != found->second.end()) row.marks.emplace_back(statistic, value->second.median);
        }
      }
      chart.rows.push_back(std::move(row));
    }
    out += fmt::format("<h3>{}</h3>\n", direction) + render_percentile_chart(chart);
  }
  return out;
}

std::string mechanism_charts(const Results& results, const std::vector<std::string>& labels) {
  std::string out =
      "<h2>Mechanism</h2>\n<p class=\"soft\">What the drivers did for each I/O, from their own counters over the same "
      "window as fio's numbers.</p>\n<div class=\"grid2\">\n";
  std::string zero;
  for (const std::string& name : measured_mechanisms(results)) {
    if (zero_everywhere(results, name)) {
      zero += (zero.empty() ? "" : ", ") + mechanism_label(name);
      continue;
    }
    const MechanismInfo* info = find_mechanism(name);
    out += fmt::format("<div><h3>{}</h3><div class=\"note\">{}</div>{}</div>\n", escape_xml(mechanism_label(name)),
                       info == nullptr ? "" : escape_xml(info->meaning), mechanism_chart(results, labels, name));
  }
  out += "</div>\n";
  if (!zero.empty()) out += "<p class=\"soft\">Zero at every point: " + escape_xml(zero) + ".</p>\n";
  return out;
}

}  // namespace xblk::report::html
