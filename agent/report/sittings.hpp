// What must be said of a run that was cut off or resumed: repeats from several sittings are not of one state of the
// machine, and a run that is not whole has fewer repeats than its profile asks for.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "agent/report/results.hpp"

namespace xblk::report {

struct SittingFigures {
  std::size_t visits = 0;            // recorded in it, those that it was ended in left out
  std::size_t points_shared = 0;     // points with ok repeats both in it and in those before it
  std::optional<double> iops_ratio;  // median over these points of: median in it / median in those before
};
std::vector<SittingFigures> sitting_figures(const Results& results);

// Visits that count, and those that the profile asks for; nullopt when that is not recorded.
std::size_t visits_done(const Results& results);
std::optional<std::size_t> visits_planned(const Results& results);

// One line each; none for a whole run in one sitting.
std::vector<std::string> run_notes(const Results& results);

// Both have ok repeats, and no sitting has some of both: between the two lies whatever happened to the machine
// meanwhile.
bool in_different_sittings(const PointResult& a, const PointResult& b);

}  // namespace xblk::report
