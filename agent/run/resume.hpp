// A run that was cut off goes on: what of its results is kept, and whether this program on this machine may go on with
// it. Pure.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "agent/report/results.hpp"
#include "agent/run/schedule.hpp"

namespace xblk::run {

// The schedule that a run had, from what its results say of it. EINVAL: they do not say enough, or contradict
// themselves.
Result<Schedule> schedule_of(const report::Results& former, const std::string& source);

// What must be as it was.
struct Circumstances {
  std::string fio_version;
  report::Json fingerprint = report::Json::object();
};

// The results with the visits that count; a visit that was cut off is taken out, to be done again. The error says what
// is not as it was: ESTALE the machine or fio, EINVAL the plan.
Result<report::Results> kept_of(report::Results former, const Schedule& schedule, const Circumstances& now);

// Nothing when the two profiles are the same text; otherwise the first line that differs, in `source`. (The results
// hold the whole text, so no hash is needed, and the difference can be named.)
std::optional<std::string> profile_difference(const std::string& recorded, const std::string& text,
                                              const std::string& source);

// By position in the schedule: is it measured?
std::vector<bool> measured_visits(const report::Results& results, const Schedule& schedule);

}  // namespace xblk::run
