// Collects checks; for verify.cpp and verify_counters.cpp.
#pragma once

#include <string>
#include <utility>

#include "agent/toggle/verify.hpp"

namespace xblk::toggle {

class Checklist {
 public:
  void equal(std::string name, const std::string& expected, const std::string& seen) {
    result_.checks.push_back({std::move(name), expected, seen, expected == seen});
  }
  void that(std::string name, std::string expected, std::string seen, bool ok) {
    result_.checks.push_back({std::move(name), std::move(expected), std::move(seen), ok});
  }
  void none(std::string name, std::uint64_t seen) { that(std::move(name), "0", std::to_string(seen), seen == 0); }
  void some(std::string name, std::uint64_t seen) {
    that(std::move(name), "more than 0", std::to_string(seen), seen > 0);
  }
  void at_least(std::string name, std::uint64_t expected, std::uint64_t seen) {
    that(std::move(name), "at least " + std::to_string(expected), std::to_string(seen), seen >= expected);
  }
  void at_most(std::string name, std::uint64_t expected, std::uint64_t seen) {
    that(std::move(name), "at most " + std::to_string(expected), std::to_string(seen), seen <= expected);
  }
  Verification take() { return std::move(result_); }

 private:
  Verification result_;
};

}  // namespace xblk::toggle
