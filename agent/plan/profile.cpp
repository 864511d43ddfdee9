#include "agent/plan/profile.hpp"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <functional>
#include <optional>
#include <sstream>

#include "agent/plan/capacity.hpp"
#include "agent/plan/points.hpp"

namespace xblk::plan {
namespace {

// Reads the tree of one file. The first mistake is kept and later reads do nothing harmful, so that the code follows
// the format and not its errors.
class ProfileReader {
 public:
  ProfileReader(const std::string& text, const std::string& source) {
    profile_.text = text;
    profile_.source = source;
  }

  Result<Profile> read(const YamlNode& root) {
    read_root(root);
    if (!error_) check_whole(root);
    if (error_) return tl::unexpected(*error_);
    return std::move(profile_);
  }

 private:
  using Reader = void (ProfileReader::*)(const YamlNode&);
  struct Section {
    const char* key;
    Reader read;
  };
  static const std::vector<Section>& sections();

  void error(Mark mark, const std::string& message) {
    if (!error_) error_ = error_at(profile_.source, mark, message);
  }

  bool expect(const YamlNode& node, YamlNode::Kind kind) {
    if (node.kind == kind) return true;
    error(node.mark, "expected " + std::string(to_string(kind)) + ", found " + std::string(to_string(node.kind)));
    return false;
  }

  std::string scalar(const YamlNode& node) { return expect(node, YamlNode::Kind::scalar) ? node.text : std::string(); }

  template <class Number>
  Number number(const YamlNode& node, Number min, Number max) {
    const std::string text = scalar(node);
    Number value = min;
    const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (code != std::errc() || end != text.data() + text.size() || value < min || value > max) {
      error(node.mark, "expected a whole number from " + std::to_string(min) + " to " + std::to_string(max));
    }
    return value;
  }

  void read_root(const YamlNode& root);
  void read_name(const YamlNode& node);
  void read_description(const YamlNode& node) { profile_.description = scalar(node); }
  void read_platform(const YamlNode& node);
  void read_store(const YamlNode& node);
  void read_matrix(const YamlNode& node) { profile_.matrix = read_axes(node, true); }
  void read_fixed(const YamlNode& node) { profile_.fixed = read_axes(node, false); }
  void read_include(const YamlNode& node) { profile_.include = read_selections(node); }
  void read_exclude(const YamlNode& node) { profile_.exclude = read_selections(node); }
  void read_fio(const YamlNode& node);
  void read_repeats(const YamlNode& node) { profile_.repeats = number(node, 1u, kRepeatsMax); }
  void read_order(const YamlNode& node);
  void read_seed(const YamlNode& node) { profile_.seed = number<std::uint64_t>(node, 0, INT64_MAX); }

  std::vector<Axis> read_axes(const YamlNode& node, bool lists);
  std::optional<Axis> read_axis(const YamlNode& key, const YamlNode& value, bool lists);
  void read_axis_value(Axis& axis, const YamlNode& node);
  std::vector<Selection> read_selections(const YamlNode& node);

  void check_whole(const YamlNode& root);
  void check_conflicts();
  void check_fio_conflicts();
  void check_size();
  void check_selections(const Expansion& expansion);
  void check_point(const Point& point, Mark mark);
  [[nodiscard]] Mark mark_of(const std::string& option) const;

  Profile profile_;
  std::vector<std::pair<std::string, Mark>> fio_marks_;
  Mark store_mark_;
  std::optional<Error> error_;
};

const std::vector<ProfileReader::Section>& ProfileReader::sections() {
  static const std::vector<Section> kSections = {
      {"name", &ProfileReader::read_name},         {"description", &ProfileReader::read_description},
      {"platform", &ProfileReader::read_platform}, {"store", &ProfileReader::read_store},
      {"fixed", &ProfileReader::read_fixed},       {"matrix", &ProfileReader::read_matrix},
      {"include", &ProfileReader::read_include},   {"exclude", &ProfileReader::read_exclude},
      {"fio", &ProfileReader::read_fio},           {"repeats", &ProfileReader::read_repeats},
      {"order", &ProfileReader::read_order},       {"seed", &ProfileReader::read_seed},
  };
  return kSections;
}

void ProfileReader::read_root(const YamlNode& root) {
  if (!expect(root, YamlNode::Kind::map)) return;
  std::vector<std::string> known;
  for (const Section& section : sections()) known.emplace_back(section.key);
  for (const auto& [key, value] : root.entries) {
    const auto found =
        std::find_if(sections().begin(), sections().end(), [&](const Section& s) { return key.text == s.key; });
    if (found == sections().end()) {
      const bool parameter = find_parameter(key.text).has_value();
      error(key.mark, "unknown key '" + key.text + "'" +
                          (parameter ? "; parameters stand under 'fixed' or 'matrix'" : suggestion(key.text, known)));
      return;
    }
    (this->*found->read)(value);
  }
  for (const char* required : {"name", "store"}) {
    const auto named = [&](const YamlEntry& entry) { return entry.key.text == required; };
    if (std::none_of(root.entries.begin(), root.entries.end(), named)) {
      error(root.mark, std::string("'") + required + "' is missing");
    }
  }
}

void ProfileReader::read_name(const YamlNode& node) {
  profile_.name = scalar(node);
  // The name becomes part of the name of the run's directory.
  const bool plain = !profile_.name.empty() && profile_.name.size() <= 64 &&
                     std::all_of(profile_.name.begin(), profile_.name.end(), [](unsigned char c) {
                       return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-';
                     });
  if (!plain) error(node.mark, "a name is 1 to 64 lower-case letters, digits and hyphens");
}

void ProfileReader::read_platform(const YamlNode& node) {
  profile_.platform = scalar(node);
  const std::vector<std::string> known = {"emu", "xen", "model"};
  if (std::find(known.begin(), known.end(), profile_.platform) != known.end()) return;
  error(node.mark, "platform is emu, xen or model, not '" + profile_.platform + "'");
}

void ProfileReader::read_store(const YamlNode& node) {
  const std::string text = scalar(node);
  if (error_) return;
  const auto store = parse_store(text);
  store_mark_ = node.mark;
  if (store) {
    profile_.store = *store;
  } else {
    error(node.mark, store.error().message);
  }
}

void ProfileReader::read_order(const YamlNode& node) {
  const std::string text = scalar(node);
  if (text == to_string(Order::interleaved)) {
    profile_.order = Order::interleaved;
  } else if (text == to_string(Order::sequential)) {
    profile_.order = Order::sequential;
  } else {
    error(node.mark, "order is interleaved or sequential, not '" + text + "'");
  }
}

void ProfileReader::read_fio(const YamlNode& node) {
  if (!expect(node, YamlNode::Kind::map)) return;
  for (const auto& [key, value] : node.entries) {
    if (auto checked = check_fio_option(key.text); !checked) {
      error(key.mark, checked.error().message);
      return;
    }
    const std::string text = scalar(value);
    if (auto checked = canonical_fio_value(text, value.quoted); checked) {
      profile_.fio.emplace_back(key.text, *checked);
    } else {
      error(value.mark, "fio option '" + key.text + "' " + checked.error().message);
    }
    fio_marks_.emplace_back(key.text, value.mark);
  }
}

void ProfileReader::read_axis_value(Axis& axis, const YamlNode& node) {
  auto value = canonical_value(axis.parameter, scalar(node), node.quoted);
  if (error_) return;
  if (!value) {
    error(node.mark, value.error().message);
    return;
  }
  if (std::find(axis.values.begin(), axis.values.end(), *value) != axis.values.end()) {
    error(node.mark, "'" + axis.parameter.name + "' has the value '" + *value + "' twice");
    return;
  }
  axis.values.push_back(std::move(*value));
}

std::optional<Axis> ProfileReader::read_axis(const YamlNode& key, const YamlNode& value, bool lists) {
  auto parameter = find_parameter(key.text);
  if (!parameter) {
    error(key.mark, parameter.error().message);
    return std::nullopt;
  }
  Axis axis{std::move(*parameter), {}, key.mark};
  if (value.kind == YamlNode::Kind::sequence && lists) {
    if (value.items.empty()) error(value.mark, "'" + key.text + "' has no value");
    for (const YamlNode& item : value.items) read_axis_value(axis, item);
  } else if (value.kind == YamlNode::Kind::sequence) {
    error(value.mark, "'" + key.text + "' is fixed, so it has one value; lists stand under 'matrix'");
  } else {
    read_axis_value(axis, value);
  }
  if (error_) return std::nullopt;
  return axis;
}

std::vector<Axis> ProfileReader::read_axes(const YamlNode& node, bool lists) {
  std::vector<Axis> axes;
  if (!expect(node, YamlNode::Kind::map)) return axes;
  for (const auto& [key, value] : node.entries) {
    auto axis = read_axis(key, value, lists);
    if (!axis) return axes;
    for (const Axis& other : axes) {
      if (same_setting(other.parameter, axis->parameter)) {
        error(key.mark, "'" + key.text + "' contradicts '" + other.parameter.name + "' on line " +
                            std::to_string(other.mark.line));
      }
    }
    axes.push_back(std::move(*axis));
  }
  return axes;
}

std::vector<Selection> ProfileReader::read_selections(const YamlNode& node) {
  std::vector<Selection> out;
  if (!expect(node, YamlNode::Kind::sequence)) return out;
  for (const YamlNode& item : node.items) {
    Selection selection{read_axes(item, true), item.mark};
    if (selection.axes.empty()) error(item.mark, "an empty entry selects nothing");
    out.push_back(std::move(selection));
  }
  return out;
}

void ProfileReader::check_conflicts() {
  for (const Axis& axis : profile_.matrix) {
    for (const Axis& fixed : profile_.fixed) {
      if (!same_setting(axis.parameter, fixed.parameter)) continue;
      error(axis.mark, "'" + axis.parameter.name + "' is also fixed, on line " + std::to_string(fixed.mark.line));
    }
  }
  for (const Selection& entry : profile_.exclude) {
    for (const Axis& axis : entry.axes) {
      const auto same = [&](const Axis& swept) { return swept.parameter.name == axis.parameter.name; };
      if (std::any_of(profile_.matrix.begin(), profile_.matrix.end(), same)) continue;
      error(axis.mark, "'" + axis.parameter.name + "' is not in the matrix, so excluding its values changes nothing");
    }
  }
}

Mark ProfileReader::mark_of(const std::string& option) const {
  for (const auto& [name, mark] : fio_marks_) {
    if (name == option) return mark;
  }
  return {};
}

void ProfileReader::check_fio_conflicts() {
  const auto option = [&](const char* name) { return find_setting(profile_.fio, name); };
  std::optional<Nanos> runtime;
  std::optional<Nanos> ramp;
  for (const auto& [name, slot] : {std::pair{"runtime", &runtime}, std::pair{"ramp_time", &ramp}}) {
    if (option(name) == nullptr) continue;
    *slot = parse_duration(*option(name));
    if (!*slot) error(mark_of(name), std::string("'") + name + "' is not a duration such as 3s or 500ms");
  }
  // fio's own rule, and a trap: without time_based a small disk ends the job long before its runtime.
  const bool time_based = option("time_based") != nullptr && *option("time_based") == "1";
  const bool bounded = option("size") != nullptr || option("io_size") != nullptr || option("number_ios") != nullptr;
  if (runtime && !time_based && !bounded) {
    error(mark_of("runtime"),
          "fio ends a job at the end of the disk even if 'runtime' is not over: add 'time_based: on', or 'size'");
  }
  if (time_based && !runtime) error(mark_of("time_based"), "'time_based' needs a 'runtime'");
  if (ramp && runtime && *ramp > *runtime) error(mark_of("ramp_time"), "'ramp_time' is longer than 'runtime'");
  for (const auto* axes : {&profile_.fixed, &profile_.matrix}) {
    for (const Axis& axis : *axes) {
      const std::string name = bare_name(axis.parameter);
      if (axis.parameter.target != ParameterTarget::fio || option(name.c_str()) == nullptr) continue;
      error(axis.mark, "'" + name + "' is also set under 'fio', on line " + std::to_string(mark_of(name).line));
    }
  }
}

// The product of the matrix is bounded before anything is built from it.
void ProfileReader::check_size() {
  const auto product = [](const std::vector<Axis>& axes) {
    std::size_t points = 1;
    for (const Axis& axis : axes) points = std::min(points * axis.values.size(), kPointsMax + 1);
    return points;
  };
  std::size_t total = product(profile_.matrix);
  const std::size_t matrix = total;
  for (const Selection& entry : profile_.include) total += matrix * product(entry.axes);
  if (total > kPointsMax) error({}, "the matrix has more than " + std::to_string(kPointsMax) + " points");
}

void ProfileReader::check_selections(const Expansion& expansion) {
  for (std::size_t i = 0; i < profile_.exclude.size(); ++i) {
    if (expansion.removed_by_exclude[i] == 0) error(profile_.exclude[i].mark, "this entry excludes nothing");
  }
  for (std::size_t i = 0; i < profile_.include.size(); ++i) {
    if (expansion.added_by_include[i] == 0) {
      error(profile_.include[i].mark, "this entry adds nothing; its points are in the matrix already");
    }
  }
}

void ProfileReader::check_point(const Point& point, Mark mark) {
  if (bytes_in_flight(point) > kBytesInFlightMax) {
    error(mark, "point " + point.id + " keeps " + format_size(bytes_in_flight(point)) +
                    " in flight (iodepth x bs x numjobs); a guest can grant " + format_size(kBytesInFlightMax));
  }
  if (const std::string why = refusal_for_guests(profile_.store, point.guests); !why.empty()) error(store_mark_, why);
  const Bytes block = *parse_size(*find_setting(point.fio, "bs"));
  const Bytes size = to_bytes(profile_.store.size);
  if (size != Bytes(0) && block > size) {  // 0: as large as the file is
    error(mark, "point " + point.id + " has blocks larger than the store (" + to_string(profile_.store) + ")");
  }
}

void ProfileReader::check_whole(const YamlNode& root) {
  check_conflicts();
  check_fio_conflicts();
  check_size();
  if (error_) return;
  const Expansion expansion = expand_and_count(profile_);
  check_selections(expansion);
  if (expansion.points.empty()) error(root.mark, "every point is excluded");
  const Mark matrix = profile_.matrix.empty() ? root.mark : profile_.matrix.front().mark;
  for (const Point& point : expansion.points) check_point(point, matrix);
}

}  // namespace

std::string_view to_string(Order order) {
  return order == Order::interleaved ? "interleaved" : "sequential";
}

Result<Profile> parse_profile(const std::string& text, const std::string& source) {
  const auto root = parse_yaml(text, source);
  if (!root) return tl::unexpected(root.error());
  return ProfileReader(text, source).read(*root);
}

Result<Profile> load_profile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return fail_errno("cannot read profile " + path);
  // One byte more than allowed is enough to refuse it, so an endless file (a device) is not read to its end.
  std::string text(kYamlBytesMax + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (file.bad()) return fail_errno("cannot read profile " + path);
  text.resize(static_cast<std::size_t>(file.gcount()));
  return parse_profile(text, path);
}

}  // namespace xblk::plan
