// What must be in order before `xblk run` starts anything: of a new run, and of one that goes on.
#pragma once

#include <string>

#include "agent/cli/exit_codes.hpp"
#include "agent/cli/profile_options.hpp"
#include "agent/host/host.hpp"
#include "agent/run/experiment.hpp"
#include "drivers/base/unique_fd.hpp"

namespace xblk::cli {

struct RunOptions {
  ProfileOptions profile;
  std::string resume;  // directory of the run that goes on, or its results.json
  std::string out;
  std::string fio = "fio";
  std::vector<std::string> overwrite;  // files that the profile names, and that may lose what is in them
  bool json = false;
  bool no_progress = false;
};

struct RunSetup {
  run::Schedule schedule;
  run::ExperimentConfig config;
  std::vector<bool> measured;      // by position in the schedule, of the sittings before
  std::vector<std::string> notes;  // what was found and done on the way
  UniqueFd lock;                   // on the run's directory
};

struct SetupError {
  ExitCode code;
  std::string message;
};

tl::expected<RunSetup, SetupError> set_up_run(host::Host& host, const RunOptions& options,
                                              const std::string& command_line);

}  // namespace xblk::cli
