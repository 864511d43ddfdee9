#include "agent/report/svg_chart.hpp"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "agent/report/format.hpp"
#include "agent/report/table.hpp"

namespace xblk::report {
namespace {

constexpr int kRowHeight = 30;
constexpr int kBarHeight = 16;
constexpr int kAxisHeight = 26;
constexpr int kTopMargin = 8;
constexpr int kValueWidth = 86;  // to the right of the plot: the value in words
constexpr double kCharacterWidth = 7.2;

// Maps values to pixels inside the plot.
struct Plot {
  double left = 0;
  double right = 0;
  double bottom = 0;
  std::function<double(double)> position;  // value -> 0..1

  [[nodiscard]] double x(double value) const { return left + std::clamp(position(value), 0.0, 1.0) * (right - left); }
};

std::string open_svg(const std::string& title, int width, double height) {
  return fmt::format(
      "<svg role=\"img\" viewBox=\"0 0 {0} {1:.0f}\" width=\"{0}\" height=\"{1:.0f}\"><title>{2}</title>\n", width,
      height, escape_xml(title));
}

std::string text(double x, double y, const char* classes, const char* anchor, const std::string& content) {
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" class=\"{}\" text-anchor=\"{}\">{}</text>\n", x, y, classes,
                     anchor, escape_xml(content));
}

std::string line(double x1, double y1, double x2, double y2, const char* classes) {
  return fmt::format("<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" class=\"{}\"/>\n", x1, y1, x2, y2,
                     classes);
}

std::string circle(double x, double y, double radius, const std::string& classes, const std::string& tip) {
  return fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"{:.1f}\" class=\"{}\"><title>{}</title></circle>\n", x, y,
                     radius, classes, escape_xml(tip));
}

std::string grid(const Plot& plot, const std::vector<double>& ticks, const std::function<std::string(double)>& format) {
  std::string out;
  for (const double tick : ticks) {
    out += line(plot.x(tick), kTopMargin, plot.x(tick), plot.bottom, "grid");
    out += text(plot.x(tick), plot.bottom + 16, "tick", "middle", trim_zeros(format(tick)));
  }
  return out;
}

double row_middle(std::size_t row) {
  return kTopMargin + kRowHeight * (static_cast<double>(row) + 0.5);
}

double largest(const BarChart& chart) {
  double max = 0;
  for (const BarChart::Row& row : chart.rows) {
    max = std::max({max, row.value.value_or(0), row.high.value_or(0)});
    for (const double dot : row.dots) max = std::max(max, dot);
  }
  return max;
}

std::string whisker(const Plot& plot, double y, double low, double high) {
  constexpr double kCap = 5;
  return line(plot.x(low), y, plot.x(high), y, "whisker") +
         line(plot.x(low), y - kCap, plot.x(low), y + kCap, "whisker") +
         line(plot.x(high), y - kCap, plot.x(high), y + kCap, "whisker");
}

std::string bar_row(const BarChart& chart, const BarChart::Row& row, const Plot& plot, double y) {
  std::string out = text(plot.left - 10, y + 4, "label", "end", row.label);
  if (!row.value) return out + text(plot.left + 6, y + 4, "missing", "start", "no value");
  out += fmt::format(
      "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{}\" rx=\"2\" class=\"bar "
      "s{}\"><title>{}</title></rect>\n",
      plot.left, y - kBarHeight / 2.0, std::max(1.0, plot.x(*row.value) - plot.left), kBarHeight,
      row.series % kSeriesColours, escape_xml(row.label + ": " + chart.format(*row.value)));
  if (row.low && row.high) out += whisker(plot, y, *row.low, *row.high);
  for (const double dot : row.dots) out += circle(plot.x(dot), y, 3, "dot", chart.format(dot));
  return out + text(chart.width - 4, y + 4, "value", "end", chart.format(*row.value));
}

std::string percentile_row(const PercentileChart& chart, const PercentileChart::Row& row, const Plot& plot, double y) {
  std::string out = text(plot.left - 10, y + 4, "label", "end", row.label);
  if (row.marks.empty()) return out + text(plot.left + 6, y + 4, "missing", "start", "no value");
  out += line(plot.x(row.marks.front().second), y, plot.x(row.marks.back().second), y, "span");
  for (std::size_t i = 0; i < row.marks.size(); ++i) {
    const auto& [name, value] = row.marks[i];
    out += circle(plot.x(value), y, 3.5 + static_cast<double>(i),
                  fmt::format("mark s{} m{}", row.series % kSeriesColours, i),
                  fmt::format("{}: {} {}", row.label, name, chart.format(value)));
  }
  return out;
}

// 1, 2, 5, 10, 20, 50 ... around the values.
std::vector<double> log_ticks(double low, double high) {
  std::vector<double> ticks;
  for (double decade = std::pow(10, std::floor(std::log10(low))); decade <= high * 10; decade *= 10) {
    for (const double step : {1.0, 2.0, 5.0}) ticks.push_back(decade * step);
  }
  const auto first = std::upper_bound(ticks.begin(), ticks.end(), low);
  const auto last = std::lower_bound(ticks.begin(), ticks.end(), high);
  return {first == ticks.begin() ? first : first - 1, last == ticks.end() ? last : last + 1};
}

}  // namespace

std::vector<double> linear_ticks(double max, int wanted) {
  if (!(max > 0) || !std::isfinite(max)) return {0, 1};
  const double raw = max / wanted;
  const double decade = std::pow(10, std::floor(std::log10(raw)));
  double step = decade * 10;
  for (const double factor : {5.0, 2.0, 1.0}) {
    if (decade * factor >= raw) step = decade * factor;
  }
  std::vector<double> ticks;
  for (int i = 0; ticks.empty() || ticks.back() < max; ++i) ticks.push_back(step * i);
  return ticks;
}

int label_width_of(const std::vector<std::string>& labels) {
  std::size_t longest = 0;
  for (const std::string& label : labels) longest = std::max(longest, display_width(label));
  return static_cast<int>(kCharacterWidth * static_cast<double>(longest)) + 14;
}

std::string render_bar_chart(const BarChart& chart) {
  const int wanted_ticks = chart.width > 600 ? 6 : 3;
  const std::vector<double> ticks = linear_ticks(largest(chart), wanted_ticks);
  Plot plot;
  plot.left = chart.label_width;
  plot.right = chart.width - kValueWidth;
  plot.bottom = kTopMargin + kRowHeight * static_cast<double>(chart.rows.size());
  plot.position = [&](double value) { return value / ticks.back(); };
  std::string out = open_svg(chart.title, chart.width, plot.bottom + kAxisHeight);
  out += grid(plot, ticks, chart.format);
  for (std::size_t i = 0; i < chart.rows.size(); ++i) out += bar_row(chart, chart.rows[i], plot, row_middle(i));
  return out + "</svg>\n";
}

std::string render_percentile_chart(const PercentileChart& chart) {
  double low = INFINITY;
  double high = 0;
  for (const PercentileChart::Row& row : chart.rows) {
    for (const auto& [unused, value] : row.marks) {
      if (value > 0) low = std::min(low, value);
      high = std::max(high, value);
    }
  }
  if (!(high > 0)) return "";
  const std::vector<double> ticks = log_ticks(low, high);
  Plot plot;
  plot.left = chart.label_width;
  plot.right = chart.width - 30;
  plot.bottom = kTopMargin + kRowHeight * static_cast<double>(chart.rows.size());
  const double first = std::log(ticks.front());
  const double range = std::max(1e-9, std::log(ticks.back()) - first);
  plot.position = [&](double value) { return value > 0 ? (std::log(value) - first) / range : 0; };
  std::string out = open_svg(chart.title, chart.width, plot.bottom + kAxisHeight);
  out += grid(plot, ticks, chart.format);
  for (std::size_t i = 0; i < chart.rows.size(); ++i) out += percentile_row(chart, chart.rows[i], plot, row_middle(i));
  return out + "</svg>\n";
}

}  // namespace xblk::report
