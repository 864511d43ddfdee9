// Do two fingerprints describe the same machine in the same state?
#pragma once

#include <string>
#include <vector>

#include "agent/report/results.hpp"

namespace xblk::report {

// One line for each fact that differs: "kernel.release: 6.1.0-44 and 6.12.3". What changes from minute to minute says
// nothing about the machine and is passed over, and so is a boot that found a little more or less memory.
std::vector<std::string> fingerprint_differences(const Json& a, const Json& b);

}  // namespace xblk::report
