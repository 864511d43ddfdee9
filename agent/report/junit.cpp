#include "agent/report/junit.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "agent/report/figures.hpp"
#include "agent/report/format.hpp"
#include "agent/report/report.hpp"

namespace xblk::report {
namespace {

std::string render_case(const std::string& suite, const JunitCase& test) {
  std::string out =
      fmt::format("    <testcase classname=\"{}\" name=\"{}\">\n", escape_xml(suite), escape_xml(test.name));
  const char* element = test.state == JunitCase::State::failed ? "failure" : "skipped";
  if (test.state != JunitCase::State::passed) {
    out += fmt::format("      <{} message=\"{}\"/>\n", element, escape_xml(test.message));
  }
  if (!test.output.empty()) out += fmt::format("      <system-out>{}</system-out>\n", escape_xml(test.output));
  return out + "    </testcase>\n";
}

JunitCase::State state_of(Outcome outcome) {
  switch (outcome) {
    case Outcome::ok:
      return JunitCase::State::passed;
    case Outcome::failed:
      return JunitCase::State::failed;
    case Outcome::inconclusive:
      return JunitCase::State::skipped;
  }
  return JunitCase::State::failed;
}

}  // namespace

std::string render_junit_suite(const JunitSuite& suite) {
  const auto count = [&](JunitCase::State state) {
    return std::count_if(suite.cases.begin(), suite.cases.end(), [&](const JunitCase& c) { return c.state == state; });
  };
  std::string out = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n";
  out += fmt::format("  <testsuite name=\"{}\" tests=\"{}\" failures=\"{}\" errors=\"0\" skipped=\"{}\"",
                     escape_xml(suite.name), suite.cases.size(), count(JunitCase::State::failed),
                     count(JunitCase::State::skipped));
  if (!suite.timestamp.empty()) out += fmt::format(" timestamp=\"{}\"", escape_xml(suite.timestamp));
  out += ">\n";
  if (!suite.properties.empty()) {
    out += "    <properties>\n";
    for (const auto& [name, value] : suite.properties) {
      out += fmt::format("      <property name=\"{}\" value=\"{}\"/>\n", escape_xml(name), escape_xml(value));
    }
    out += "    </properties>\n";
  }
  for (const JunitCase& test : suite.cases) out += render_case(suite.name, test);
  return out + "  </testsuite>\n</testsuites>\n";
}

std::string render_junit(const Results& results) {
  JunitSuite suite{results.run.profile_name, results.run.started, {}, {}};
  suite.properties = {{"run", results.run.id},
                      {"platform", results.run.platform},
                      {"xblk_version", results.run.xblk_version},
                      {"fio_version", results.run.fio_version},
                      {"seed", std::to_string(results.run.seed)}};
  for (const auto& [name, value] : results.run.fingerprint.items()) {
    suite.properties.emplace_back("host." + name, json_text(value));
  }
  for (const PointResult& point : results.points) {
    std::string output = join_params(point.params);
    if (point.iops) output += fmt::format("\niops {:.0f}", point.iops->median);
    suite.cases.push_back({point.id, state_of(point.status), point.reason, std::move(output)});
  }
  return render_junit_suite(suite);
}

}  // namespace xblk::report
