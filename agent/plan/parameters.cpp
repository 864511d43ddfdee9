#include "agent/plan/parameters.hpp"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <iterator>
#include <map>
#include <numeric>

#include "agent/fio/job.hpp"

namespace xblk::plan {
namespace {

constexpr std::uint64_t kGuestsMax = 64;
constexpr std::uint64_t kDepthMax = 4096;
constexpr std::uint64_t kJobsMax = 64;
constexpr std::uint64_t kBlockMax = 16 << 20;

// What fio itself would take, and a profile may not: a profile is data, so it starts no program and names no file, and
// the percentiles of a result are always the same ones. The job writer (agent/fio) refuses what it sets itself.
bool is_refused_option(std::string_view option) {
  constexpr std::string_view kRefused[] = {"exec_prerun",     "exec_postrun",    "directory",      "opendir",
                                           "filename_format", "replay_redirect", "read_iolog",     "write_iolog",
                                           "include",         "disable_clat",    "percentile_list"};
  return std::find(std::begin(kRefused), std::end(kRefused), option) != std::end(kRefused);
}

// Options that a profile sets and the job writer has a place of its own for.
bool is_duration_or_size(std::string_view option) {
  return option == "runtime" || option == "ramp_time" || option == "time_based" || option == "size";
}

const std::map<std::string, std::string, std::less<>>& load_parameter_of_option() {
  static const std::map<std::string, std::string, std::less<>> kOwn = {{"bs", "bs"},           {"blocksize", "bs"},
                                                                       {"rw", "rw"},           {"readwrite", "rw"},
                                                                       {"iodepth", "iodepth"}, {"numjobs", "numjobs"}};
  return kOwn;
}

Parameter count_parameter(std::string name, ParameterTarget target, std::uint64_t min, std::uint64_t max,
                          std::string fallback, std::string help) {
  Parameter out;
  out.name = std::move(name);
  out.kind = ParameterKind::count;
  out.target = target;
  out.min = min;
  out.max = max;
  out.fallback = std::move(fallback);
  out.help = std::move(help);
  return out;
}

std::vector<Parameter> load_parameters() {
  Parameter rw;
  rw.name = "rw";
  rw.kind = ParameterKind::word;
  rw.words = {"read", "write", "randread", "randwrite", "readwrite", "randrw", "trim", "randtrim", "trimwrite"};
  rw.fallback = "randread";
  rw.help = "direction and order of the I/Os (fio's rw)";
  Parameter bs;
  bs.name = "bs";
  bs.kind = ParameterKind::size;
  bs.min = kSectorSize;
  bs.max = kBlockMax;
  bs.multiple = kSectorSize;
  bs.fallback = "4k";
  bs.help = "size of one I/O (fio's bs)";
  return {std::move(rw), std::move(bs),
          count_parameter("iodepth", ParameterTarget::fio, 1, kDepthMax, "1", "I/Os in flight per job"),
          count_parameter("numjobs", ParameterTarget::fio, 1, kJobsMax, "1", "jobs (threads) per guest")};
}

std::string replace_all(std::string text, char from, char to) {
  std::replace(text.begin(), text.end(), from, to);
  return text;
}

std::vector<std::string> parameter_names() {
  std::vector<std::string> names;
  for (const Parameter& parameter : parameters()) names.push_back(parameter.name);
  return names;
}

const Parameter* find_named(const std::string& name) {
  for (const Parameter& parameter : parameters()) {
    if (parameter.name == name) return &parameter;
  }
  return nullptr;
}

Result<Parameter> find_one_end(const std::string& full_name, const std::string& key, ParameterTarget end) {
  const Parameter* both = find_named(key);
  if (both == nullptr) {
    return fail(EINVAL, "unknown key '" + full_name + "'" + suggestion(key, parameter_names()));
  }
  if (both->target != ParameterTarget::both_ends) {
    return fail(EINVAL, "'" + key + "' is not a policy of both ends; write it without 'front.' or 'back.'");
  }
  Parameter one = *both;
  one.name = full_name;
  one.target = end;
  if (end == ParameterTarget::back) one.fallback = both->back_fallback;
  return one;
}

std::optional<std::string> as_boolean(const std::string& text) {
  static const std::map<std::string, std::string, std::less<>> kWords = {
      {"on", "on"},   {"true", "on"},   {"yes", "on"}, {"1", "on"},
      {"off", "off"}, {"false", "off"}, {"no", "off"}, {"0", "off"}};
  std::string lower = text;
  std::transform(lower.begin(), lower.end(), lower.begin(), [](unsigned char c) { return std::tolower(c); });
  const auto found = kWords.find(lower);
  return found == kWords.end() ? std::nullopt : std::optional(found->second);
}

std::string list_words(const std::vector<std::string>& words) {
  std::string out;
  for (const std::string& word : words) out += (out.empty() ? "" : "|") + word;
  return out;
}

tl::unexpected<Error> bad_value(const Parameter& parameter, const std::string& text, const std::string& hint = "") {
  return fail(EINVAL,
              "'" + parameter.name + "' cannot be '" + text + "'; it takes " + allowed_values(parameter) + hint);
}

Result<std::string> canonical_count(const Parameter& parameter, const std::string& text) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool whole = error == std::errc() && end == text.data() + text.size();
  if (whole && value >= parameter.min && value <= parameter.max) return std::to_string(value);
  return bad_value(parameter, text);
}

Result<std::string> canonical_size(const Parameter& parameter, const std::string& text) {
  const auto bytes = parse_size(text);
  if (bytes && bytes->value() >= parameter.min && bytes->value() <= parameter.max &&
      bytes->value() % parameter.multiple == 0) {
    return format_size(*bytes);
  }
  return bad_value(parameter, text);
}

Result<std::string> canonical_word(const Parameter& parameter, const std::string& text) {
  std::string word = parameter.name == "rw" ? text : replace_all(text, '_', '-');
  if (parameter.name == "rw" && word == "rw") word = "readwrite";  // fio's short name
  const auto& words = parameter.words;
  if (std::find(words.begin(), words.end(), word) != words.end()) return word;
  return bad_value(parameter, text, suggestion(word, words));
}

std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t substituted = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, substituted});
    }
  }
  return row[b.size()];
}

}  // namespace

std::string_view to_string(ParameterTarget target) {
  switch (target) {
    case ParameterTarget::guests:
      return "guests";
    case ParameterTarget::host:
      return "host";
    case ParameterTarget::front:
      return "front";
    case ParameterTarget::back:
      return "back";
    case ParameterTarget::both_ends:
      return "both ends";
    case ParameterTarget::fio:
      return "fio";
  }
  return "fio";
}

const std::string* find_setting(const Settings& settings, std::string_view name) {
  for (const auto& [key, value] : settings) {
    if (key == name) return &value;
  }
  return nullptr;
}

std::string bare_name(const Parameter& parameter) {
  const std::size_t dot = parameter.name.find('.');
  return dot == std::string::npos ? parameter.name : parameter.name.substr(dot + 1);
}

bool same_setting(const Parameter& a, const Parameter& b) {
  if (a.name == b.name) return true;
  const bool ends = a.target == ParameterTarget::both_ends || b.target == ParameterTarget::both_ends;
  return ends && bare_name(a) == bare_name(b);
}

const std::vector<Parameter>& parameters() {
  static const std::vector<Parameter> kAll = [] {
    std::vector<Parameter> all = {count_parameter("guests", ParameterTarget::guests, 1, kGuestsMax, "1",
                                                  "guests, each one fio process with one disk")};
    std::vector<Parameter> policies = policy_parameters();
    // Guests and queues give a point its size, so they stand first in its name and in every table.
    const auto queues =
        std::find_if(policies.begin(), policies.end(), [](const auto& p) { return p.name == "queues"; });
    std::rotate(policies.begin(), queues, queues + 1);
    std::move(policies.begin(), policies.end(), std::back_inserter(all));
    for (Parameter& load : load_parameters()) all.push_back(std::move(load));
    return all;
  }();
  return kAll;
}

Result<Parameter> find_parameter(const std::string& name) {
  if (name.starts_with("fio.")) {
    const std::string option = name.substr(4);
    if (auto checked = check_fio_option(option); !checked) return tl::unexpected(checked.error());
    Parameter out;
    out.name = "fio." + option;
    out.help = "fio's option " + option;
    return out;
  }
  const std::string hyphenated = replace_all(name, '_', '-');
  if (hyphenated.starts_with("front.")) return find_one_end(hyphenated, hyphenated.substr(6), ParameterTarget::front);
  if (hyphenated.starts_with("back.")) return find_one_end(hyphenated, hyphenated.substr(5), ParameterTarget::back);
  if (const Parameter* found = find_named(hyphenated)) return *found;
  if (const auto own = load_parameter_of_option().find(name); own != load_parameter_of_option().end()) {
    return *find_named(own->second);
  }
  return fail(EINVAL, "unknown key '" + name + "'" + suggestion(hyphenated, parameter_names()));
}

std::string allowed_values(const Parameter& parameter) {
  switch (parameter.kind) {
    case ParameterKind::boolean:
      return "on or off";
    case ParameterKind::count:
      return "a whole number from " + std::to_string(parameter.min) + " to " + std::to_string(parameter.max);
    case ParameterKind::size:
      return "a size from " + format_size(Bytes(parameter.min)) + " to " + format_size(Bytes(parameter.max)) +
             ", a multiple of " + std::to_string(parameter.multiple) + " bytes";
    case ParameterKind::word:
      return "one of " + list_words(parameter.words);
    case ParameterKind::text:
      break;
  }
  return "any text";
}

Result<std::string> canonical_value(const Parameter& parameter, const std::string& text, bool quoted) {
  switch (parameter.kind) {
    case ParameterKind::boolean:
      if (const auto boolean = as_boolean(text); boolean && !quoted) return *boolean;
      return bad_value(parameter, text);
    case ParameterKind::count:
      return canonical_count(parameter, text);
    case ParameterKind::size:
      return canonical_size(parameter, text);
    case ParameterKind::word:
      return canonical_word(parameter, text);
    case ParameterKind::text:
      return canonical_fio_value(text, quoted);
  }
  return text;
}

Status check_fio_option(const std::string& option) {
  const auto& own = load_parameter_of_option();
  if (const auto parameter = own.find(option); parameter != own.end()) {
    return fail(EINVAL, "'" + option + "' is a parameter of its own; write '" + parameter->second +
                            "' under 'fixed' or 'matrix', without 'fio'");
  }
  if (is_duration_or_size(option)) return {};
  if (is_refused_option(option)) return fail(EINVAL, "fio option '" + option + "' is not for profiles");
  return fio::check_passed_option(option);
}

Result<std::string> canonical_fio_value(const std::string& text, bool quoted) {
  // A line break would end the option and begin another one in fio's job file.
  const auto control = [](unsigned char c) { return std::iscntrl(c) != 0; };
  if (std::any_of(text.begin(), text.end(), control)) return fail(EINVAL, "has a control character in its value");
  // fio wants 0 and 1 where YAML people write on and off.
  if (!quoted && (text == "on" || text == "true")) return "1";
  if (!quoted && (text == "off" || text == "false")) return "0";
  return text;
}

std::string suggestion(std::string_view wrong, const std::vector<std::string>& known) {
  const std::size_t limit = std::max<std::size_t>(1, wrong.size() / 3);
  std::size_t best = limit + 1;
  const std::string* nearest = nullptr;
  for (const std::string& candidate : known) {
    const std::size_t distance = edit_distance(wrong, candidate);
    if (distance >= best) continue;
    best = distance;
    nearest = &candidate;
  }
  return nearest == nullptr ? "" : " (did you mean '" + *nearest + "'?)";
}

}  // namespace xblk::plan
