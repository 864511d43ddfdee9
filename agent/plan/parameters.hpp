// What may be varied: the number of guests, every driver policy (drivers/blkif/policy.hpp), the load, and any fio
// option. One place turns what a person writes into the canonical value that points, results and comparisons use.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "drivers/base/result.hpp"
#include "drivers/base/units.hpp"

namespace xblk::plan {

// Parameter or option name -> canonical value, in a fixed order.
using Settings = std::vector<std::pair<std::string, std::string>>;
const std::string* find_setting(const Settings& settings, std::string_view name);

enum class ParameterKind { boolean, count, size, word, text };
enum class ParameterTarget { guests, host, front, back, both_ends, fio };
std::string_view to_string(ParameterTarget target);

struct Parameter {
  std::string name;  // canonical: "queues", "front.pools", "bs", "fio.rwmixread"
  ParameterKind kind = ParameterKind::text;
  ParameterTarget target = ParameterTarget::fio;
  std::uint64_t min = 0;           // count, and size in bytes
  std::uint64_t max = UINT64_MAX;  // count, and size in bytes
  std::uint64_t multiple = 1;      // size: must be a multiple of this
  std::vector<std::string> words;  // word
  std::string fallback;            // canonical value when the profile does not say
  std::string back_fallback;       // the backend's, when the profile speaks of the front alone
  std::string help;
};

// The two speak of the same thing, so that a profile cannot have both: equal, or "pools" and "front.pools".
bool same_setting(const Parameter& a, const Parameter& b);

// "pools" of "front.pools", "rwmixread" of "fio.rwmixread", else the name itself.
std::string bare_name(const Parameter& parameter);

// The rows of drivers/blkif/policy.hpp as parameters. A policy of both ends that the profile does not name has the
// front's default at both: what is negotiated is then the same as with each end's own.
std::vector<Parameter> policy_parameters();

// A canonical value as the driver's key wants it: "1" for "on".
std::string policy_text(const Parameter& policy, const std::string& canonical);

// The policy that stands for the values of all others which the profile does not name.
inline constexpr std::string_view kPresetParameter = "preset";
inline constexpr std::string_view kNoPreset = "none";

// All policies of one end (front or back) as a preset has them, as the driver's keys want them.
std::map<std::string, std::string> preset_policies(ParameterTarget end, const std::string& preset);

// All parameters with a name of their own, in canonical order: guests, policies, load.
const std::vector<Parameter>& parameters();

// Understands underscores for hyphens in policy names, `front.` and `back.` before a policy of both ends, and
// `fio.<option>`. The error says why the name is refused, with the nearest known name.
Result<Parameter> find_parameter(const std::string& name);

// "on or off", "a whole number from 1 to 16".
std::string allowed_values(const Parameter& parameter);

// `quoted`: a YAML value in quotes is taken as text, so "on" is not a boolean.
Result<std::string> canonical_value(const Parameter& parameter, const std::string& text, bool quoted);

// An fio option and its value as they stand under `fio:`; the same rules as for `fio.<option>`.
Status check_fio_option(const std::string& option);
Result<std::string> canonical_fio_value(const std::string& text, bool quoted);

// "4k", "1MiB", "4096" -> bytes; units are powers of 1024, as in fio. nullopt if it is not a size.
std::optional<Bytes> parse_size(std::string_view text);
std::string format_size(Bytes bytes);  // the shortest exact form fio reads: "4k", "1m", "1000"

// fio's durations: "3", "3s", "500ms", "2m", "1h". nullopt if it is not one.
std::optional<Nanos> parse_duration(std::string_view text);

// ", did you mean 'queues'?" or "".
std::string suggestion(std::string_view wrong, const std::vector<std::string>& known);

}  // namespace xblk::plan
