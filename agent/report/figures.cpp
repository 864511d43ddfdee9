#include "agent/report/figures.hpp"

#include <algorithm>
#include <map>
#include <set>

#include <fmt/format.h>

#include "agent/report/format.hpp"
#include "agent/report/mechanism.hpp"

namespace xblk::report {

namespace {

// The value that most points have; of several, the one that comes first.
std::string usual_value(const std::vector<Params>& points, const std::string& name) {
  std::map<std::string, std::size_t> counts;
  for (const Params& params : points) ++counts[value_of(params, name)];
  std::string usual = value_of(points.front(), name);
  for (const Params& params : points) {
    if (counts[value_of(params, name)] > counts[usual]) usual = value_of(params, name);
  }
  return usual;
}

}  // namespace

SplitParams split_params(const std::vector<Params>& points) {
  std::vector<std::string> names;
  std::set<std::string> seen;
  for (const Params& params : points) {
    for (const auto& [name, unused] : params) {
      if (seen.insert(name).second) names.push_back(name);
    }
  }
  SplitParams out;
  for (const std::string& name : names) {
    const std::string first = value_of(points.front(), name);
    const bool common = std::all_of(points.begin(), points.end(),
                                    [&](const Params& params) { return value_of(params, name) == first; });
    if (common) {
      out.common.emplace_back(name, first);
    } else {
      out.varying.push_back(name);
    }
  }
  if (out.varying.size() > kVaryingColumnsMax) {
    for (const std::string& name : out.varying) out.usual.emplace_back(name, usual_value(points, name));
  }
  return out;
}

std::vector<std::string> label_columns(const SplitParams& split) {
  if (split.usual.empty()) return split.varying;
  return {"otherwise than most"};
}

std::vector<std::string> label_cells(const Params& params, const SplitParams& split) {
  std::vector<std::string> cells;
  if (split.usual.empty()) {
    for (const std::string& name : split.varying) cells.push_back(value_of(params, name));
    return cells;
  }
  Params own;
  for (const auto& [name, value] : split.usual) {
    if (value_of(params, name) != value) own.emplace_back(name, value_of(params, name));
  }
  return {own.empty() ? "(nothing)" : join_params(own)};
}

std::string label_of(const Params& params, const SplitParams& split) {
  if (!split.usual.empty()) return label_cells(params, split).front();
  Params own;
  for (const std::string& name : split.varying) own.emplace_back(name, value_of(params, name));
  return own.empty() ? "all" : join_params(own);
}

std::string value_of(const Params& params, const std::string& name) {
  for (const auto& [key, value] : params) {
    if (key == name) return value;
  }
  return "-";
}

std::string join_params(const Params& params) {
  std::string out;
  for (const auto& [name, value] : params) out += (out.empty() ? "" : " ") + name + "=" + value;
  return out;
}

std::vector<Params> params_of(const Results& results) {
  std::vector<Params> out;
  for (const PointResult& point : results.points) out.push_back(point.params);
  return out;
}

std::string point_label(const PointResult& point, const SplitParams& split) {
  return split.varying.empty() ? point.id : label_of(point.params, split);
}

std::string iops_spread(const PointResult& point) {
  if (!point.iops) return "-";
  if (point.iops->low && point.iops->high) {
    return human_iops(*point.iops->low) + " .. " + human_iops(*point.iops->high);
  }
  std::vector<double> values;
  for (const Repeat& repeat : point.repeats) {
    if (repeat.status == Outcome::ok && repeat.iops) values.push_back(*repeat.iops);
  }
  if (values.empty()) return "-";
  const auto [low, high] = std::minmax_element(values.begin(), values.end());
  return fmt::format("({} .. {})", human_iops(*low), human_iops(*high));
}

std::vector<std::string_view> measured_directions(const Results& results) {
  std::vector<std::string_view> out;
  for (const std::string_view direction : kDirections) {
    const bool any = std::any_of(results.points.begin(), results.points.end(), [&](const PointResult& point) {
      return point.latency_ns.contains(std::string(direction));
    });
    if (any) out.push_back(direction);
  }
  return out;
}

std::string latency_text(const PointResult& point, std::string_view direction, std::string_view statistic) {
  const auto by_direction = point.latency_ns.find(std::string(direction));
  if (by_direction == point.latency_ns.end()) return "-";
  const auto found = by_direction->second.find(std::string(statistic));
  return found == by_direction->second.end() ? "-" : human_ns(found->second.median);
}

// Only the figures that at least one point has; a table of dashes explains nothing.
std::vector<std::string> measured_mechanisms(const Results& results) {
  std::vector<std::string> names;
  for (const MechanismInfo& info : kMechanisms) names.emplace_back(info.name);
  for (const PointResult& point : results.points) {
    for (const auto& [name, unused] : point.mechanism) {
      if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
    }
  }
  std::erase_if(names, [&](const std::string& name) {
    return std::none_of(results.points.begin(), results.points.end(),
                        [&](const PointResult& point) { return point.mechanism.contains(name); });
  });
  return names;
}

std::string mechanism_label(const std::string& name) {
  const MechanismInfo* info = find_mechanism(name);
  return info == nullptr ? printable(name) : std::string(info->label);
}

std::string metric_title(std::string_view metric) {
  if (metric == "iops") return "IOPS";
  return std::string(metric.substr(0, metric.find('_'))) + " p99";
}

}  // namespace xblk::report
