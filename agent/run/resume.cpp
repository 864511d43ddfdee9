#include "agent/run/resume.hpp"

#include <algorithm>
#include <optional>

#include <fmt/format.h>

#include "agent/report/fingerprint.hpp"
#include "agent/report/format.hpp"

namespace xblk::run {
namespace {

constexpr const char* kStartAnew = "start a new run and compare the two";

// Another program may know other parameters, or other defaults.
std::optional<std::string> params_difference(const report::Params& recorded, const report::Params& own) {
  const auto value_in = [](const report::Params& params, const std::string& name) -> std::string {
    const std::string* value = plan::find_setting(params, name);
    return value == nullptr ? "absent" : "'" + *value + "'";
  };
  for (const auto* side : {&recorded, &own}) {
    for (const auto& [name, unused] : *side) {
      const std::string then = value_in(recorded, name);
      const std::string now = value_in(own, name);
      if (then != now) return fmt::format("'{}' was {} and is {}", name, then, now);
    }
  }
  return std::nullopt;
}

Status check_points(const report::Results& former, const Schedule& schedule) {
  const auto other_plan = [&](const std::string& what) {
    return fail(EINVAL, fmt::format("this xblk makes another plan of the profile than xblk {} did: {}; resume with "
                                    "that version, or {}",
                                    former.run.xblk_version, what, kStartAnew));
  };
  if (former.points.size() != schedule.points.size()) {
    return other_plan(fmt::format("{} points, not {}", schedule.points.size(), former.points.size()));
  }
  for (std::size_t i = 0; i < schedule.points.size(); ++i) {
    const auto& then = former.points[i];
    const auto& now = schedule.points[i];
    if (const auto difference = params_difference(then.params, now.params)) {
      return other_plan(fmt::format("of point {} {}", then.id, *difference));
    }
    if (then.id != now.id) return other_plan(fmt::format("point {} is called {}", then.id, now.id));
  }
  return {};
}

// Each repeat is the visit that the plan has at its position, and is there once.
Status check_repeats(const report::Results& former, const Schedule& schedule) {
  std::vector<bool> seen(schedule.visits.size(), false);
  for (std::size_t i = 0; i < former.points.size(); ++i) {
    for (const report::Repeat& repeat : former.points[i].repeats) {
      const std::size_t at = repeat.order_position;
      const bool planned = at < seen.size() && schedule.visits[at] == plan::Visit{i, repeat.index};
      if (!planned || seen[at] || repeat.sitting >= former.run.sittings.size()) {
        return fail(EINVAL, fmt::format("repeat {} of point {} is not what the plan has at position {}: the file was "
                                        "changed; {}",
                                        repeat.index, former.points[i].id, at, kStartAnew));
      }
      seen[at] = true;
    }
  }
  return {};
}

Status check_circumstances(const report::RunInfo& run, const Circumstances& now) {
  if (run.fio_version != now.fio_version) {
    return fail(ESTALE, fmt::format("the run was measured with {}, this is {}; give that one with --fio, or {}",
                                    run.fio_version, now.fio_version, kStartAnew));
  }
  const auto differences = report::fingerprint_differences(run.fingerprint, now.fingerprint);
  if (differences.empty()) return {};
  const std::string more = differences.size() > 1 ? fmt::format(" (and {} more)", differences.size() - 1) : "";
  return fail(ESTALE, fmt::format("the run was measured on another machine, or another state of this one, and repeats "
                                  "of the two must not be mixed: {}{}; {}",
                                  differences.front(), more, kStartAnew));
}

std::vector<std::string_view> lines_of(std::string_view text) {
  std::vector<std::string_view> lines;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    lines.push_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

}  // namespace

Result<Schedule> schedule_of(const report::Results& former, const std::string& source) {
  const report::RunInfo& run = former.run;
  if (run.repeats == 0 || run.sittings.empty()) {
    return fail(EINVAL, fmt::format("{}: xblk {} did not record what resuming needs; {}", source, run.xblk_version,
                                    kStartAnew));
  }
  if (run.repeats > plan::kRepeatsMax) {
    return fail(EINVAL, fmt::format("{}: {} repeats were never planned: the file was changed", source, run.repeats));
  }
  auto profile = plan::parse_profile(run.profile_text, source + " (its profile)");
  if (!profile) return tl::unexpected(profile.error());
  profile->platform = run.platform;
  if (run.order != plan::to_string(profile->order)) {
    return fail(EINVAL, source + ": order '" + run.order + "' is not that of its profile: the file was changed");
  }
  return make_schedule(*std::move(profile), static_cast<unsigned>(run.repeats), run.seed, 0);
}

Result<report::Results> kept_of(report::Results former, const Schedule& schedule, const Circumstances& now) {
  auto status = check_circumstances(former.run, now);
  if (status) status = check_points(former, schedule);
  if (status) status = check_repeats(former, schedule);
  if (!status) return tl::unexpected(status.error());
  for (report::PointResult& point : former.points) {
    if (std::erase_if(point.repeats, [](const report::Repeat& repeat) { return repeat.interrupted; }) > 0) {
      report::summarise(point);
    }
  }
  return former;
}

std::optional<std::string> profile_difference(const std::string& recorded, const std::string& text,
                                              const std::string& source) {
  const auto then = lines_of(recorded);
  const auto now = lines_of(text);
  std::size_t line = 0;
  while (line < then.size() && line < now.size() && then[line] == now[line]) ++line;
  if (line == then.size() && line == now.size()) return std::nullopt;  // but for the last line break
  const auto shown = [&](const std::vector<std::string_view>& lines) {
    return line < lines.size() ? "'" + report::printable(lines[line]) + "'" : std::string("nothing");
  };
  return fmt::format("{}:{}: is {}, and {} in the profile that the run began with; a run has one profile: {}", source,
                     line + 1, shown(now), shown(then), kStartAnew);
}

std::vector<bool> measured_visits(const report::Results& results, const Schedule& schedule) {
  std::vector<bool> measured(schedule.visits.size(), false);
  for (const report::PointResult& point : results.points) {
    for (const report::Repeat& repeat : point.repeats) measured.at(repeat.order_position) = true;
  }
  return measured;
}

}  // namespace xblk::run
