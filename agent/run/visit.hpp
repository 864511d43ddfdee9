// One visit of one point: the states of observer.hpp, from toggled policies to a repeat of the results.
#pragma once

#include <vector>

#include "agent/metrics/mechanism.hpp"
#include "agent/run/guest_run.hpp"
#include "agent/run/load.hpp"
#include "agent/run/observer.hpp"
#include "agent/run/rig.hpp"
#include "agent/toggle/toggle.hpp"

namespace xblk::run {

// What outlives the visit and is only used by it.
struct VisitContext {
  host::Host& host;
  Rig& rig;
  toggle::Toggle& toggle;
  const Programs& programs;
  const RunLayout& run;
  bool store_answers_late;
  metrics::IdleRate idle_tlb_rate;
  Observer& observer;
};

class Visit {
 public:
  Visit(const VisitContext& context, const plan::Point& point, std::size_t repeat, std::size_t position);

  // Never leaves a fio behind. What goes wrong is the repeat's status and reason; an error means that the results
  // directory cannot be written.
  Result<report::Repeat> run();

 private:
  // Each fails with the reason why this visit measures nothing.
  Status toggle_policies();
  Status start_guests();
  Status connect();
  Status measure();

  [[nodiscard]] Status never_connected() const;
  [[nodiscard]] Status check_stop();  // the user said "stop now", or the rig is gone
  [[nodiscard]] bool all_ended();
  void stop_guests();
  void prove();
  void enter(VisitState state) { context_.observer.visit_state(state); }

  const VisitContext& context_;
  const plan::Point& point_;
  toggle::Agreement agreement_;
  report::Repeat repeat_;
  std::filesystem::path directory_;  // relative to the run's
  bool cut_short_ = false;           // by the user or by us: what fio says about its end is not the cause
  std::vector<GuestRun> guests_;
};

}  // namespace xblk::run
