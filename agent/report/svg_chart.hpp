// Charts as inline SVG: bars with whiskers and raw values, and percentiles on a logarithmic axis. No script, and
// colours come from the page's style sheet (classes s0 .. s7), so that a dark page has dark charts.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace xblk::report {

inline constexpr std::size_t kSeriesColours = 8;

struct BarChart {
  struct Row {
    std::string label;
    std::optional<double> value;
    std::optional<double> low;  // whiskers
    std::optional<double> high;
    std::vector<double> dots;  // single repeats
    std::size_t series = 0;
  };
  std::string title;  // read out by screen readers
  int width = 900;    // pixels
  int label_width = 0;
  std::function<std::string(double)> format;
  std::vector<Row> rows;
};
std::string render_bar_chart(const BarChart& chart);

struct PercentileChart {
  struct Row {
    std::string label;
    std::vector<std::pair<std::string, double>> marks;  // "p50" -> value, ascending
    std::size_t series = 0;
  };
  std::string title;
  int width = 900;
  int label_width = 0;
  std::function<std::string(double)> format;
  std::vector<Row> rows;
};
std::string render_percentile_chart(const PercentileChart& chart);

// Room for the longest label, in pixels, at the charts' font size.
int label_width_of(const std::vector<std::string>& labels);

// Round tick values from 0 to at least `max`: steps of 1, 2 or 5 times a power of ten.
std::vector<double> linear_ticks(double max, int wanted);

}  // namespace xblk::report
