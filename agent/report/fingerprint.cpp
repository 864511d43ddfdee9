#include "agent/report/fingerprint.hpp"

#include <cmath>
#include <set>

#include "agent/report/format.hpp"

namespace xblk::report {
namespace {

bool is_volatile(const std::string& name) {
  return name.find("load") != std::string::npos || name == "uptime_s";
}

// The firmware and the kernel's own tables take a few MiB more or less at each boot.
bool same_amount(const std::string& name, const Json& a, const Json& b) {
  constexpr double kTolerance = 0.01;
  if (name != "memory_total_kib" || !a.is_number() || !b.is_number()) return false;
  return std::abs(a.get<double>() - b.get<double>()) <= kTolerance * a.get<double>();
}

std::string shown(const Json& value) {
  return value.is_null() ? "absent" : json_text(value);
}

void compare(const Json& a, const Json& b, const std::string& path, std::vector<std::string>& out) {
  std::set<std::string> names;
  for (const Json* side : {&a, &b}) {
    for (const auto& [name, unused] : side->items()) names.insert(name);
  }
  for (const std::string& name : names) {
    if (is_volatile(name)) continue;
    const Json left = a.value(name, Json());
    const Json right = b.value(name, Json());
    if (left == right || same_amount(name, left, right)) continue;
    if (left.is_object() && right.is_object()) {
      compare(left, right, path + name + ".", out);
    } else {
      out.push_back(path + name + ": " + shown(left) + " and " + shown(right));
    }
  }
}

}  // namespace

std::vector<std::string> fingerprint_differences(const Json& a, const Json& b) {
  std::vector<std::string> out;
  compare(a, b, "", out);
  return out;
}

}  // namespace xblk::report
