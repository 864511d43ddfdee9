// JUnit XML, as pipelines read it: testsuite = matrix, testcase = point, skipped = inconclusive.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace xblk::report {

struct JunitCase {
  enum class State { passed, failed, skipped };
  std::string name;
  State state = State::passed;
  std::string message;
  std::string output;
};

struct JunitSuite {
  std::string name;
  std::string timestamp;
  std::vector<std::pair<std::string, std::string>> properties;
  std::vector<JunitCase> cases;
};

std::string render_junit_suite(const JunitSuite& suite);

}  // namespace xblk::report
