// Results as a table for the terminal, as CSV and as Markdown.
#include <algorithm>
#include <span>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "agent/report/figures.hpp"
#include "agent/report/format.hpp"
#include "agent/report/mechanism.hpp"
#include "agent/report/report.hpp"
#include "agent/report/sittings.hpp"
#include "agent/report/table.hpp"

namespace xblk::report {
namespace {

std::string human(const std::optional<Aggregate>& aggregate, std::string (*format)(double)) {
  return aggregate ? format(aggregate->median) : "-";
}

// Where a point's name is too long to head a column, its number does.
std::string number_of(const Results& results, const PointResult& point) {
  return std::to_string(&point - results.points.data() + 1);
}

Table performance_table(const Results& results, const SplitParams& split) {
  Table table;
  const bool numbered = !split.usual.empty();
  if (numbered) table.columns.push_back({"point", true});
  for (const std::string& name : label_columns(split)) table.columns.push_back({printable(name), !numbered});
  table.columns.insert(table.columns.end(),
                       {{"status"}, {"IOPS", true}, {"interval or (range)", true}, {"bandwidth", true}});
  const auto directions = measured_directions(results);
  for (const std::string_view direction : directions) {
    for (const char* statistic : {"p50", "p99"})
      table.columns.push_back({fmt::format("{} {}", direction, statistic), true});
  }
  for (const PointResult& point : results.points) {
    std::vector<std::string> row;
    if (numbered) row.push_back(number_of(results, point));
    for (const std::string& cell : label_cells(point.params, split)) row.push_back(printable(cell));
    row.insert(row.end(), {std::string(to_string(point.status)), human(point.iops, human_iops), iops_spread(point),
                           human(point.bandwidth_bytes_per_s, human_bandwidth)});
    for (const std::string_view direction : directions) {
      for (const char* statistic : {"p50", "p99"}) row.push_back(latency_text(point, direction, statistic));
    }
    table.rows.push_back(std::move(row));
  }
  return table;
}

std::string mechanism_text(const PointResult& point, const std::string& name) {
  const auto found = point.mechanism.find(name);
  return found == point.mechanism.end() ? "-" : human_mechanism(name, found->second.median);
}

// What heads a point's column in the table of mechanisms.
std::string column_title(const Results& results, const PointResult& point, const SplitParams& split) {
  if (!split.usual.empty()) return number_of(results, point);
  return fmt::format("{}", fmt::join(label_cells(point.params, split), " "));
}

// Points as columns: there are more mechanisms than fit beside each other. The first column's title names the
// parameters whose values head the other columns.
Table mechanism_table(const Results& results, std::span<const PointResult> points, const SplitParams& split) {
  Table table;
  const std::string names = split.usual.empty() ? fmt::format("{}", fmt::join(split.varying, " ")) : "point";
  table.columns.push_back({names.empty() ? "mechanism" : printable(names)});
  for (const PointResult& point : points)
    table.columns.push_back({printable(column_title(results, point, split)), true});
  for (const std::string& name : measured_mechanisms(results)) {
    std::vector<std::string> row = {mechanism_label(name)};
    for (const PointResult& point : points) row.push_back(mechanism_text(point, name));
    table.rows.push_back(std::move(row));
  }
  return table;
}

// With more points beside each other the table is wider than a terminal; the next ones stand in a table below.
constexpr std::size_t kPointsAsColumnsMax = 6;

std::string mechanism_tables(const Results& results, const SplitParams& split) {
  std::string out;
  const std::span<const PointResult> points(results.points);
  for (std::size_t first = 0; first < points.size(); first += kPointsAsColumnsMax) {
    const std::size_t count = std::min(kPointsAsColumnsMax, points.size() - first);
    if (first > 0) out += "\n";
    out += render_table(mechanism_table(results, points.subspan(first, count), split), nullptr);
  }
  return out;
}

Table mechanism_table_by_point(const Results& results, const SplitParams& split) {
  Table table;
  for (const std::string& name : label_columns(split)) table.columns.push_back({printable(name), true});
  const std::vector<std::string> names = measured_mechanisms(results);
  for (const std::string& name : names) table.columns.push_back({mechanism_label(name), true});
  for (const PointResult& point : results.points) {
    std::vector<std::string> row;
    for (const std::string& cell : label_cells(point.params, split)) row.push_back(printable(cell));
    for (const std::string& name : names) row.push_back(mechanism_text(point, name));
    table.rows.push_back(std::move(row));
  }
  return table;
}

std::string paint_status(const Table& table, std::size_t row, std::size_t column, const std::string& text) {
  if (table.columns[column].title != "status") return text;
  const std::string& status = table.rows[row][column];
  const char* colour = status == "ok" ? "\x1b[32m" : status == "failed" ? "\x1b[31m" : "\x1b[33m";
  return colour + text + "\x1b[0m";
}

std::string reasons(const Results& results) {
  std::string out;
  for (const PointResult& point : results.points) {
    if (point.status == Outcome::ok) continue;
    out += fmt::format("{} {}: {}\n", to_string(point.status), printable(point.id), printable(point.reason));
  }
  return out;
}

std::string csv_number(std::optional<double> value) {
  return value ? fmt::format("{}", *value) : "";
}

}  // namespace

std::string render_text(const Results& results, bool colour) {
  const RunInfo& run = results.run;
  std::string out = fmt::format("{}  {}\n{}\n", printable(run.profile_name), printable(run.id),
                                printable(platform_label(run.platform)));
  out += fmt::format("{} .. {}  {}  xblk {}  order {}, seed {}\n", printable(run.started), printable(run.ended),
                     printable(run.fio_version), printable(run.xblk_version), printable(run.order), run.seed);
  for (const std::string& note : run_notes(results)) out += printable(note) + "\n";
  if (results.points.empty()) return out + "no points\n";
  const SplitParams split = split_params(params_of(results));
  out += "all points: " + printable(join_params(split.common)) + "\n\n";
  out += render_table(performance_table(results, split), colour ? paint_status : nullptr) + "\n";
  out += mechanism_tables(results, split);
  if (const std::string why = reasons(results); !why.empty()) out += "\n" + why;
  return out;
}

std::string render_markdown(const Results& results) {
  const RunInfo& run = results.run;
  std::string out = fmt::format("## {}\n\n**{}**\n\n", escape_markdown(run.profile_name + " " + run.id),
                                escape_markdown(platform_label(run.platform)));
  for (const std::string& note : run_notes(results)) out += escape_markdown(note) + "\n\n";
  if (results.points.empty()) return out + "no points\n";
  const SplitParams split = split_params(params_of(results));
  out += "All points: " + escape_markdown(join_params(split.common)) + "\n\n";
  out += render_markdown_table(performance_table(results, split)) + "\n";
  out += render_markdown_table(mechanism_table_by_point(results, split));
  if (const std::string why = reasons(results); !why.empty()) out += "\n" + escape_markdown(why) + "\n";
  return out;
}

std::string render_csv(const Results& results) {
  std::vector<std::string> names;
  for (const Params& params : params_of(results)) {
    for (const auto& [name, unused] : params) {
      if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
    }
  }
  std::string out = "run,point,repeat,order_position,status,reason";
  for (const std::string& name : names) out += "," + escape_csv(name);
  out += ",iops,bandwidth_bytes_per_s";
  for (const std::string_view direction : kDirections) {
    for (const std::string_view statistic : kLatencyStatistics) {
      out += fmt::format(",{}_latency_{}_ns", direction, statistic);
    }
  }
  for (const MechanismInfo& info : kMechanisms) out += "," + std::string(info.name);
  out += ",sitting\r\n";
  for (const PointResult& point : results.points) {
    for (const Repeat& repeat : point.repeats) {
      out += fmt::format("{},{},{},{},{},{}", escape_csv(results.run.id), escape_csv(point.id), repeat.index,
                         repeat.order_position, to_string(repeat.status), escape_csv(repeat.reason));
      for (const std::string& name : names) out += "," + escape_csv(value_of(point.params, name));
      out += "," + csv_number(repeat.iops) + "," + csv_number(repeat.bandwidth_bytes_per_s);
      for (const std::string_view direction : kDirections) {
        const auto found = repeat.latency_ns.find(std::string(direction));
        for (const std::string_view statistic : kLatencyStatistics) {
          out += ",";
          if (found == repeat.latency_ns.end()) continue;
          const auto value = found->second.find(std::string(statistic));
          if (value != found->second.end()) out += csv_number(value->second);
        }
      }
      for (const MechanismInfo& info : kMechanisms) {
        const auto found = repeat.mechanism.find(std::string(info.name));
        out += "," + (found == repeat.mechanism.end() ? "" : csv_number(found->second));
      }
      out += fmt::format(",{}\r\n", repeat.sitting);
    }
  }
  return out;
}

}  // namespace xblk::report
