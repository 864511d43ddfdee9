// A YAML file as a plain tree whose every node knows its line and column. Bounded: size, depth, number of nodes; no
// anchors, aliases or tags (an alias bomb of 1 KiB expands to gigabytes, and a profile needs none of them).
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "drivers/base/result.hpp"

namespace xblk::plan {

inline constexpr std::size_t kYamlBytesMax = 64 * 1024;
inline constexpr std::size_t kYamlDepthMax = 8;
inline constexpr std::size_t kYamlNodesMax = 10'000;

struct Mark {
  int line = 1;  // both from 1, as editors count
  int column = 1;
};

struct YamlEntry;

struct YamlNode {
  enum class Kind { null, scalar, sequence, map };
  Kind kind = Kind::null;
  Mark mark;
  std::string text;     // scalar
  bool quoted = false;  // scalar: "on" in quotes is a word, on without is a boolean
  std::vector<YamlNode> items;
  std::vector<YamlEntry> entries;  // in the file's order; keys are unique scalars
};

struct YamlEntry {
  YamlNode key;
  YamlNode value;
};

std::string_view to_string(YamlNode::Kind kind);

// "source:line:column: message"
Error error_at(const std::string& source, Mark mark, const std::string& message);

Result<YamlNode> parse_yaml(const std::string& text, const std::string& source);

}  // namespace xblk::plan
