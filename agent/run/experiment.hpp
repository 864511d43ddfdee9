// A whole run: every visit of the schedule, with everything put back and written down whatever happens.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "agent/host/host.hpp"
#include "agent/metrics/mechanism.hpp"
#include "agent/report/results.hpp"
#include "agent/run/observer.hpp"
#include "agent/run/programs.hpp"
#include "agent/run/rig.hpp"
#include "agent/run/schedule.hpp"
#include "agent/run/store_files.hpp"
#include "agent/toggle/toggle.hpp"

namespace xblk::run {

struct ExperimentConfig {
  Programs programs;
  RunLayout run;  // the directory exists
  std::filesystem::path state_directory;
  std::string command_line;
  std::string fio_version;
  std::vector<StoreFile> store_files = {};     // of the guests, as they were found; checked
  std::optional<report::Results> former = {};  // of the sittings before, to go on from: as kept_of() gave them
};

// For the exit code.
struct Summary {
  std::size_t failed = 0;  // points
  std::size_t inconclusive = 0;
  int signal = 0;                     // ended by the user before its end
  std::vector<std::string> warnings;  // what could not be restored
};

Summary summary_of(const report::Results& results);

class Experiment {
 public:
  Experiment(host::Host& host, Rig& rig, ExperimentConfig config, Schedule schedule, Observer& observer);

  // An error: the environment does not allow to go on; what was measured until then is in the results file all the
  // same, as far as it could be written.
  Result<Summary> run();

  [[nodiscard]] const report::Results& results() const { return results_; }

 private:
  // The rig that is up, with a vbd for each guest and the journal of what is changed on it.
  struct Session {
    RigSpec spec;
    std::filesystem::path journal;
    std::unique_ptr<toggle::Toggle> toggle;
  };

  Status measure_idle();
  Status visit_all();
  Status visit(std::size_t position);
  Status ensure_session(const RigSpec& spec);
  Status attach_disk(unsigned guest);
  void close_session();
  void restore_session();
  Status write_results();
  void warn(const std::string& line);

  host::Host& host_;
  Rig& rig_;
  ExperimentConfig config_;
  Schedule schedule_;
  Observer& observer_;
  report::Results results_;
  std::vector<bool> measured_;  // by position: in this sitting or one before
  metrics::IdleRate idle_tlb_rate_;
  std::optional<Session> session_;
  Summary summary_;
};

}  // namespace xblk::run
