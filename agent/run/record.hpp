// From what the guests of one visit left behind to one repeat of the results. Pure.
#pragma once

#include <vector>

#include "agent/metrics/mechanism.hpp"
#include "agent/report/results.hpp"
#include "agent/run/guest_run.hpp"

namespace xblk::run {

// What is known about one guest when all have ended.
struct GuestRecord {
  unsigned guest = 1;
  std::string command;
  std::optional<toggle::Verification> keys;
  report::Json negotiated = report::Json::object();
  GuestOutcome outcome;
};

struct RecordContext {
  toggle::Agreement agreement;
  toggle::CountedLoad load;  // of one guest
  bool moves_data = true;
  metrics::IdleRate idle_tlb_rate;
};

// Figures, mechanism and proof. The status is the worst that any guest, the counters or the cross-check say.
void record(report::Repeat& repeat, const std::vector<GuestRecord>& guests, const RecordContext& context);

// The worse of what is there and `outcome`; a reason stays with the first that caused it.
void worsen(report::Repeat& repeat, report::Outcome outcome, const std::string& reason);

}  // namespace xblk::run
