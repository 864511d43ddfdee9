// A whole run: every visit of the schedule, with everything put back and written down whatever happens.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "agent/host/host.hpp"
#include "agent/metrics/mechanism.hpp"
#include "agent/plan/points.hpp"
#include "agent/report/results.hpp"
#include "agent/run/observer.hpp"
#include "agent/run/programs.hpp"
#include "agent/run/rig.hpp"
#include "agent/toggle/toggle.hpp"

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

// Time of the load alone.
Nanos planned_load(const Schedule& schedule);

struct ExperimentConfig {
  Programs programs;
  RunLayout run;  // the directory exists
  std::filesystem::path state_directory;
  std::string command_line;
  std::string fio_version;
};

// Worst over the points, for the exit code.
struct Summary {
  std::size_t failed = 0;
  std::size_t inconclusive = 0;
  int signal = 0;                     // ended by the user before its end
  std::vector<std::string> warnings;  // what could not be restored
};

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
  metrics::IdleRate idle_tlb_rate_;
  std::optional<Session> session_;
  Summary summary_;
};

}  // namespace xblk::run
