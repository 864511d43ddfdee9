// Who watches a run: a progress display, or nobody.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "agent/plan/points.hpp"
#include "agent/report/results.hpp"

namespace xblk::run {

// What one visit of a point goes through. A failure leads straight to `recorded`.
enum class VisitState {
  toggling,    // policies into xenstore, journal first; until the backend offers what they allow
  starting,    // one fio per guest
  connecting,  // until both ends of each guest publish what the policies agree on
  measuring,
  proving,  // exit codes, fio's results, counters
  recorded,
};
std::string_view to_string(VisitState state);

class Observer {
 public:
  virtual ~Observer() = default;
  virtual void note(const std::string& /*line*/) {}  // something worth a line of its own
  virtual void visit_begins(std::size_t /*position*/, const plan::Point&, std::size_t /*repeat*/) {}
  virtual void visit_state(VisitState) {}
  virtual void tick() {}  // now and then while nothing else happens
  virtual void visit_ends(std::size_t /*position*/, const plan::Point&, const report::Repeat&) {}
};

}  // namespace xblk::run
