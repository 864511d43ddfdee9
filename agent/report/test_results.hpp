// Results as a run would leave them, for the tests of this folder.
#pragma once

#include "agent/report/results.hpp"

namespace xblk::report {

// A point with one ok repeat per value of `iops`.
PointResult example_point(const std::string& id, const Params& params, const std::vector<double>& iops);

// The quick profile: queues 1 and 2, persistent on and off, three repeats each.
Results example_results();

}  // namespace xblk::report
