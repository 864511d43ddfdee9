#include "agent/run/schedule.hpp"

#include <algorithm>

#include "agent/plan/capacity.hpp"

namespace xblk::run {
namespace {

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;
constexpr std::uint64_t kGuestMemoryMiBMin = 256;

}  // namespace

Schedule make_schedule(plan::Profile profile, std::optional<unsigned> repeats, std::uint64_t seed,
                       std::uint64_t drawn) {
  Schedule schedule;
  if (repeats) profile.repeats = *repeats;
  if (seed != 0) profile.seed = seed;
  if (profile.seed == 0) profile.seed = drawn;
  schedule.points = plan::expand(profile);
  schedule.visits = plan::schedule(schedule.points.size(), profile.repeats, profile.order, profile.seed);
  schedule.profile = std::move(profile);
  return schedule;
}

RigSpec rig_spec_of(const Schedule& schedule, const plan::Point& point) {
  RigSpec spec{.guests = point.guests, .host = point.host};
  for (const plan::Point& each : schedule.points) {
    // Twice: the engine's buffers stand beside the pages of the frontend's own pool.
    const std::uint64_t bytes = plan::guest_memory_of(each).value() + plan::bytes_in_flight(each).value();
    spec.guest_memory_mib = std::max(spec.guest_memory_mib, kGuestMemoryMiBMin + 2 * bytes / kMiB);
  }
  return spec;
}

Nanos planned_load(const Schedule& schedule) {
  return load_left(schedule, std::vector<bool>(schedule.visits.size(), false));
}

Nanos load_left(const Schedule& schedule, const std::vector<bool>& measured) {
  Nanos total;
  for (std::size_t i = 0; i < schedule.visits.size(); ++i) {
    if (!measured[i]) total += plan::load_time(schedule.points[schedule.visits[i].point_index]);
  }
  return total;
}

}  // namespace xblk::run
