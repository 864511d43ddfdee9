// A profile: what to measure, as a person wrote it (profiles/README.md documents the format), checked completely.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "agent/plan/parameters.hpp"
#include "agent/plan/store_spec.hpp"
#include "agent/plan/yaml_tree.hpp"
#include "drivers/base/result.hpp"
#include "drivers/base/units.hpp"

namespace xblk::plan {

inline constexpr std::size_t kPointsMax = 10'000;
inline constexpr unsigned kRepeatsMax = 1'000;

enum class Order { interleaved, sequential };
std::string_view to_string(Order order);

struct Axis {
  Parameter parameter;
  std::vector<std::string> values;  // canonical
  Mark mark;
};

// One entry of include or exclude.
struct Selection {
  std::vector<Axis> axes;
  Mark mark;
};

struct Profile {
  std::string source;  // path it was read from
  std::string text;    // verbatim
  std::string name;
  std::string description;
  std::string platform = "emu";
  StoreSpec store;
  std::vector<Axis> fixed;   // one value each
  std::vector<Axis> matrix;  // at least one value each; the product of all is measured
  std::vector<Selection> include;
  std::vector<Selection> exclude;
  Settings fio;  // options of every job
  unsigned repeats = 3;
  Order order = Order::interleaved;
  std::uint64_t seed = 0;  // 0: drawn when the run starts, and recorded
};

Result<Profile> load_profile(const std::string& path);
Result<Profile> parse_profile(const std::string& text, const std::string& source);

}  // namespace xblk::plan
