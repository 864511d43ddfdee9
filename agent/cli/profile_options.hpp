// What `plan` and `run` have in common: a profile and what overrides it.
#pragma once

#include <optional>
#include <string>

#include <CLI/CLI.hpp>

#include "agent/run/experiment.hpp"

namespace xblk::cli {

struct ProfileOptions {
  std::string profile;
  std::optional<unsigned> repeats;
  std::uint64_t seed = 0;
  std::string platform;

  // Returns the profile, so that a command can do without it.
  CLI::Option* add_to(CLI::App& command);
  // EINVAL: the profile, with line and column. `drawn` is the seed when neither profile nor option gives one.
  Result<run::Schedule> schedule(std::uint64_t drawn) const;
};

// What this version cannot measure, and what fio cannot be given, is found before anything starts.
Status check_schedule(const run::Schedule& schedule);

}  // namespace xblk::cli
