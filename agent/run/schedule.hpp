// The visits of a run in their order, and what they need.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "agent/plan/points.hpp"
#include "agent/run/rig.hpp"

namespace xblk::run {

struct Schedule {
  plan::Profile profile;
  std::vector<plan::Point> points;
  std::vector<plan::Visit> visits;
};

// `seed` 0: the profile's; both 0: `drawn`. The seed in force ends up in the profile.
Schedule make_schedule(plan::Profile profile, std::optional<unsigned> repeats, std::uint64_t seed, std::uint64_t drawn);

// What a machine that serves this point must be. Memory is that of the largest point, so that it never is a reason to
// start another machine.
RigSpec rig_spec_of(const Schedule& schedule, const plan::Point& point);

// What connecting, ending and proving add to the load of a visit, about; for estimates before the first is over.
inline constexpr Nanos kVisitOverhead = millis(700);

// Time of the load alone; the second of the visits that are not measured yet.
Nanos planned_load(const Schedule& schedule);
Nanos load_left(const Schedule& schedule, const std::vector<bool>& measured);

}  // namespace xblk::run
