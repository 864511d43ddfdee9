#include "agent/plan/points.hpp"

#include <algorithm>
#include <charconv>
#include <numeric>
#include <set>

#include "drivers/base/prng.hpp"

namespace xblk::plan {
namespace {

// The values of one combination, by parameter name, before defaults are filled in.
using Choice = std::vector<std::pair<const Parameter*, std::string>>;

// Visits the product of all axes, last axis fastest (an odometer).
template <class Visit>
void for_each_combination(const std::vector<const Axis*>& axes, Visit visit) {
  std::vector<std::size_t> digits(axes.size(), 0);
  for (;;) {
    Choice choice;
    for (std::size_t i = 0; i < axes.size(); ++i) choice.emplace_back(&axes[i]->parameter, axes[i]->values[digits[i]]);
    visit(choice);
    std::size_t turn = axes.size();
    while (turn > 0 && ++digits[turn - 1] == axes[turn - 1]->values.size()) digits[--turn] = 0;
    if (turn == 0) return;
  }
}

std::vector<const Axis*> pointers(const std::vector<Axis>& axes) {
  std::vector<const Axis*> out;
  for (const Axis& axis : axes) out.push_back(&axis);
  return out;
}

const std::string* chosen(const Choice& choice, std::string_view name) {
  for (const auto& [parameter, value] : choice) {
    if (parameter->name == name) return &value;
  }
  return nullptr;
}

bool selected(const Choice& choice, const Selection& selection) {
  return std::all_of(selection.axes.begin(), selection.axes.end(), [&](const Axis& axis) {
    const std::string* value = chosen(choice, axis.parameter.name);
    return value != nullptr && std::find(axis.values.begin(), axis.values.end(), *value) != axis.values.end();
  });
}

void apply(Point& point, const Parameter& parameter, const std::string& value) {
  const std::string key = bare_name(parameter);
  switch (parameter.target) {
    case ParameterTarget::guests:
      std::from_chars(value.data(), value.data() + value.size(), point.guests);
      return;
    case ParameterTarget::host:
      point.host[key] = policy_text(parameter, value);
      return;
    case ParameterTarget::front:
      point.front[key] = policy_text(parameter, value);
      return;
    case ParameterTarget::back:
      point.back[key] = policy_text(parameter, value);
      return;
    case ParameterTarget::both_ends:
      point.front[key] = point.back[key] = policy_text(parameter, value);
      return;
    case ParameterTarget::fio:
      point.fio.emplace_back(key, value);
      return;
  }
}

// A parameter and its value at one point.
struct Setting {
  Parameter parameter;
  std::string value;
  bool shown;  // in the id, whatever the value is
};

// One parameter's part of the point's id; empty when the id does not mention it.
std::string slug_part(const Setting& setting) {
  static const std::map<std::string, std::string, std::less<>> kShort = {
      {"guests", "g"}, {"queues", "q"}, {"bs", "bs"}, {"iodepth", "qd"}, {"rw", ""}};
  const auto& [parameter, value, shown] = setting;
  if (const auto found = kShort.find(parameter.name); found != kShort.end()) return found->second + value;
  if (!shown && value == parameter.fallback && !parameter.name.starts_with("fio.")) return "";
  if (parameter.name == "numjobs") return "j" + value;
  if (parameter.name == kPresetParameter) return value == kNoPreset ? "no-preset" : value;
  if (parameter.kind == ParameterKind::boolean) return (value == "on" ? "" : "no") + parameter.name;
  return bare_name(parameter) + "-" + value;
}

// Ids become directory names: everything outside a small alphabet is replaced.
std::string slug(const std::vector<Setting>& settings) {
  std::string id;
  for (const Setting& setting : settings) {
    const std::string part = slug_part(setting);
    if (!part.empty()) id += (id.empty() ? "" : "-") + part;
  }
  for (char& c : id) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-';
    if (!plain) c = c == '.' ? '-' : '_';
  }
  constexpr std::size_t kIdBytesMax = 120;  // leaves room below NAME_MAX for suffixes
  return id.substr(0, kIdBytesMax);
}

// A policy of both ends that was set at one end only: the other end keeps its default, and both are named.
bool split_at_ends(const Choice& choice, std::string_view key) {
  return chosen(choice, "front." + std::string(key)) != nullptr ||
         chosen(choice, "back." + std::string(key)) != nullptr;
}

// The preset of an end. A profile that names none anywhere has `none`: every policy's own default.
std::string preset_at(const Choice& choice, ParameterTarget end) {
  const std::string* own =
      chosen(choice, (end == ParameterTarget::front ? "front." : "back.") + std::string(kPresetParameter));
  const std::string* both = chosen(choice, kPresetParameter);
  return own != nullptr ? *own : both != nullptr ? *both : std::string(kNoPreset);
}

bool names_preset(const Choice& choice) {
  return chosen(choice, kPresetParameter) != nullptr || split_at_ends(choice, kPresetParameter);
}

bool is_policy(const Parameter& parameter) {
  return parameter.target == ParameterTarget::front || parameter.target == ParameterTarget::back ||
         parameter.target == ParameterTarget::both_ends;
}

// The halves of a policy that is set at one end only: both with their values, or only what is written where a preset
// stands for the other. One setting when both come to the same.
void append_split(std::vector<Setting>& out, const Choice& choice, const Parameter& parameter, bool shown) {
  const bool by_preset = names_preset(choice);
  std::vector<Setting> halves;
  for (const auto end : {ParameterTarget::front, ParameterTarget::back}) {
    const bool front = end == ParameterTarget::front;
    Parameter half = parameter;
    half.name = (front ? "front." : "back.") + parameter.name;
    half.target = end;
    if (!front) half.fallback = parameter.back_fallback;
    const std::string* value = chosen(choice, half.name);
    if (value != nullptr || !by_preset) halves.push_back({half, value != nullptr ? *value : half.fallback, shown});
  }
  if (halves.size() == 2 && halves[0].value == halves[1].value) {
    out.push_back({parameter, halves[0].value, shown});
  } else {
    out.insert(out.end(), halves.begin(), halves.end());
  }
}

// The parameters that make the point what it is, in canonical order: all of them, chosen or default; only the chosen
// policies where a preset stands for the others. fio's options follow by name.
std::vector<Setting> identity(const Choice& choice) {
  std::vector<Setting> out;
  const bool by_preset = names_preset(choice);
  for (const Parameter& parameter : parameters()) {
    const std::string* value = chosen(choice, parameter.name);
    const bool split = split_at_ends(choice, parameter.name);
    const bool written = value != nullptr || split;
    if (is_policy(parameter) && !written && (by_preset || parameter.name == kPresetParameter)) continue;
    const bool shown = parameter.name == "persistent" || (is_policy(parameter) && by_preset);
    if (split) {
      append_split(out, choice, parameter, shown);
    } else {
      out.push_back({parameter, value != nullptr ? *value : parameter.fallback, shown});
    }
  }
  for (const auto& [parameter, value] : choice) {
    if (parameter->name.starts_with("fio.")) out.push_back({*parameter, value, true});
  }
  return out;
}

// How long fio measures does not change what it measures, so two runs of different length may be compared.
bool is_duration_option(std::string_view option) {
  return option == "runtime" || option == "ramp_time";
}

Point make_point(const Profile& profile, const Choice& choice) {
  Point point;
  point.front = preset_policies(ParameterTarget::front, preset_at(choice, ParameterTarget::front));
  point.back = preset_policies(ParameterTarget::back, preset_at(choice, ParameterTarget::back));
  const auto settings = identity(choice);
  point.id = slug(settings);
  for (const Setting& setting : settings) {
    point.params.emplace_back(setting.parameter.name, setting.value);
    apply(point, setting.parameter, setting.value);
  }
  for (const auto& [option, value] : profile.fio) {
    if (find_setting(point.fio, option) != nullptr) continue;  // refused by the reader unless from `include`
    point.fio.emplace_back(option, value);
    if (!is_duration_option(option)) point.params.emplace_back("fio." + option, value);
  }
  point.params.emplace_back("store", to_string(profile.store));
  return point;
}

// Points in order, each identity once and each id once.
class PointList {
 public:
  // False if the point is there already.
  bool add(Point point) {
    if (!identities_.insert(point.params).second) return false;
    // Different points may share an id after replacing characters or cutting; the later ones are numbered.
    const std::string id = point.id;
    for (int n = 2; !ids_.insert(point.id).second; ++n) point.id = id + "-" + std::to_string(n);
    points_.push_back(std::move(point));
    return true;
  }
  std::vector<Point> take() { return std::move(points_); }

 private:
  std::vector<Point> points_;
  std::set<Settings> identities_;
  std::set<std::string> ids_;
};

// What an entry of `include` sweeps: its own axes, and those of the profile that it does not name.
std::vector<const Axis*> axes_of_include(const Profile& profile, const Selection& entry) {
  std::vector<const Axis*> axes;
  const auto named = [&](const Axis& axis) {
    return std::any_of(entry.axes.begin(), entry.axes.end(),
                       [&](const Axis& own) { return same_setting(own.parameter, axis.parameter); });
  };
  for (const auto* group : {&profile.fixed, &profile.matrix}) {
    for (const Axis& axis : *group) {
      if (!named(axis)) axes.push_back(&axis);
    }
  }
  for (const Axis& axis : entry.axes) axes.push_back(&axis);
  return axes;
}

}  // namespace

Expansion expand_and_count(const Profile& profile) {
  Expansion out;
  out.removed_by_exclude.resize(profile.exclude.size());
  out.added_by_include.resize(profile.include.size());
  PointList list;
  std::vector<const Axis*> axes = pointers(profile.fixed);
  for (const Axis& axis : profile.matrix) axes.push_back(&axis);
  for_each_combination(axes, [&](const Choice& choice) {
    bool excluded = false;
    for (std::size_t i = 0; i < profile.exclude.size(); ++i) {
      if (!selected(choice, profile.exclude[i])) continue;
      ++out.removed_by_exclude[i];
      excluded = true;
    }
    if (!excluded) list.add(make_point(profile, choice));
  });
  for (std::size_t i = 0; i < profile.include.size(); ++i) {
    for_each_combination(axes_of_include(profile, profile.include[i]), [&](const Choice& choice) {
      if (list.add(make_point(profile, choice))) ++out.added_by_include[i];
    });
  }
  out.points = list.take();
  return out;
}

std::vector<Point> expand(const Profile& profile) {
  return expand_and_count(profile).points;
}

std::vector<Visit> schedule(std::size_t points, std::size_t repeats, Order order, std::uint64_t seed) {
  std::vector<Visit> visits;
  visits.reserve(points * repeats);
  if (order == Order::sequential) {
    for (std::size_t point = 0; point < points; ++point) {
      for (std::size_t repeat = 0; repeat < repeats; ++repeat) visits.push_back({point, repeat});
    }
    return visits;
  }
  Prng prng(seed);
  std::vector<std::size_t> block(points);
  for (std::size_t repeat = 0; repeat < repeats; ++repeat) {
    std::iota(block.begin(), block.end(), std::size_t{0});
    for (std::size_t left = points; left > 1; --left) std::swap(block[left - 1], block[prng.below(left)]);
    for (const std::size_t point : block) visits.push_back({point, repeat});
  }
  return visits;
}

Nanos load_time(const Point& point) {
  Nanos total;
  for (const std::string_view option : {"ramp_time", "runtime"}) {
    const std::string* value = find_setting(point.fio, option);
    if (const auto time = value != nullptr ? parse_duration(*value) : std::nullopt) total += *time;
  }
  return total;
}

Bytes bytes_in_flight(const Point& point) {
  std::uint64_t product = parse_size(*find_setting(point.fio, "bs"))->value();
  for (const std::string_view factor : {"iodepth", "numjobs"}) {
    product *= parse_size(*find_setting(point.fio, factor))->value();
  }
  return Bytes(product);
}

}  // namespace xblk::plan
