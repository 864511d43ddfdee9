#include "agent/cli/profile_options.hpp"

#include <fmt/format.h>

#include "agent/run/load.hpp"

namespace xblk::cli {

void ProfileOptions::add_to(CLI::App& command) {
  command.add_option("profile", profile, "Profile (YAML); profiles/README.md documents the format")->required();
  command.add_option("--repeats", repeats, "Visits of each point, instead of the profile's")
      ->check(CLI::Range(1U, plan::kRepeatsMax));
  command.add_option("--seed", seed, "Seed of the order of visits, instead of the profile's");
  command.add_option("--platform", platform, "Where to run: emu (emulated hypervisor on this machine)")
      ->check(CLI::IsMember({"emu"}));
}

Result<run::Schedule> ProfileOptions::schedule(std::uint64_t drawn) const {
  auto read = plan::load_profile(profile);
  if (!read) return tl::unexpected(read.error());
  if (!platform.empty()) read->platform = platform;
  if (read->platform != "emu") {
    return fail(EINVAL, fmt::format("{}: platform '{}' cannot be measured by this version; it knows 'emu'", profile,
                                    read->platform));
  }
  auto schedule = run::make_schedule(*std::move(read), repeats, seed, drawn);
  // What fio cannot be given is found now, not after half of the points.
  for (const plan::Point& point : schedule.points) {
    if (auto job = run::job_of(point, {}, {}, 1, {}); !job) return forward(job.error(), profile);
  }
  return schedule;
}

}  // namespace xblk::cli
