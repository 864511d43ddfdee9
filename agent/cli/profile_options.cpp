#include "agent/cli/profile_options.hpp"

#include <fmt/format.h>

#include "agent/run/load.hpp"

namespace xblk::cli {

CLI::Option* ProfileOptions::add_to(CLI::App& command) {
  auto* file = command.add_option("profile", profile, "Profile (YAML); profiles/README.md documents the format");
  command.add_option("--repeats", repeats, "Visits of each point, instead of the profile's")
      ->check(CLI::Range(1U, plan::kRepeatsMax));
  command.add_option("--seed", seed, "Seed of the order of visits, instead of the profile's");
  command.add_option("--platform", platform, "Where to run: emu (emulated hypervisor on this machine)")
      ->check(CLI::IsMember({"emu"}));
  return file;
}

Result<run::Schedule> ProfileOptions::schedule(std::uint64_t drawn) const {
  auto read = plan::load_profile(profile);
  if (!read) return tl::unexpected(read.error());
  if (!platform.empty()) read->platform = platform;
  auto schedule = run::make_schedule(*std::move(read), repeats, seed, drawn);
  if (auto checked = check_schedule(schedule); !checked) return tl::unexpected(checked.error());
  return schedule;
}

Status check_schedule(const run::Schedule& schedule) {
  const plan::Profile& profile = schedule.profile;
  if (profile.platform != "emu") {
    return fail(EINVAL, fmt::format("{}: platform '{}' cannot be measured by this version; it knows 'emu'",
                                    profile.source, profile.platform));
  }
  for (const plan::Point& point : schedule.points) {
    if (auto job = run::job_of(point, {}, {}, 1, {}); !job) return forward(job.error(), profile.source);
  }
  return {};
}

}  // namespace xblk::cli
