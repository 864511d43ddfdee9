// The ways a backend reaches its frontend's pages, which attacks on grants meet one by one.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <ostream>
#include <string>

#include "drivers/blkif/policy.hpp"

namespace xblk::scenarios {

struct NamedDataPath {
  const char* name;
  blkif::PolicyMap policy;

  [[nodiscard]] bool persistent() const { return policy.empty(); }
  [[nodiscard]] bool maps_each_request() const { return std::string(name) == "map"; }
  [[nodiscard]] blkif::BackPolicy back_policy() const { return blkif::parse_back_policy(policy).value(); }
  friend std::ostream& operator<<(std::ostream& out, const NamedDataPath& path) { return out << path.name; }
};

inline const std::array kDataPaths = {
    NamedDataPath{"persistent", {}},
    NamedDataPath{"map", {{"persistent", "0"}, {"data-path", "map"}}},
    NamedDataPath{"copy", {{"persistent", "0"}, {"data-path", "copy"}}},
    // One and two pages are copied, more are mapped.
    NamedDataPath{"hybrid", {{"persistent", "0"}, {"data-path", "hybrid"}, {"hybrid-threshold", "8192"}}},
};

// For INSTANTIATE_TEST_SUITE_P.
inline std::string name_of_data_path(const testing::TestParamInfo<NamedDataPath>& test) {
  return test.param.name;
}

}  // namespace xblk::scenarios
