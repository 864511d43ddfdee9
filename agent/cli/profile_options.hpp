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

  void add_to(CLI::App& command);
  // EINVAL: the profile, with line and column. `drawn` is the seed when neither profile nor option gives one.
  Result<run::Schedule> schedule(std::uint64_t drawn) const;
};

}  // namespace xblk::cli
