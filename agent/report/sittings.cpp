#include "agent/report/sittings.hpp"

#include <algorithm>
#include <set>

#include <fmt/format.h>

#include "agent/stats/stats.hpp"

namespace xblk::report {
namespace {

std::set<std::size_t> sittings_of(const PointResult& point) {
  std::set<std::size_t> out;
  for (const Repeat& repeat : point.repeats) {
    if (repeat.status == Outcome::ok) out.insert(repeat.sitting);
  }
  return out;
}

SittingFigures figures_of(const Results& results, std::size_t sitting) {
  SittingFigures out;
  std::vector<double> ratios;
  for (const PointResult& point : results.points) {
    std::vector<double> here;
    std::vector<double> before;
    for (const Repeat& repeat : point.repeats) {
      if (repeat.sitting == sitting && !repeat.interrupted) ++out.visits;
      if (repeat.status != Outcome::ok || !repeat.iops || repeat.sitting > sitting) continue;
      (repeat.sitting == sitting ? here : before).push_back(*repeat.iops);
    }
    if (!here.empty() && !before.empty()) ratios.push_back(stats::median(here) / stats::median(before));
  }
  out.points_shared = ratios.size();
  if (!ratios.empty()) out.iops_ratio = stats::median(ratios);
  return out;
}

std::string note_of(const Results& results, std::size_t number, const SittingFigures& figures) {
  const std::vector<Sitting>& all = results.run.sittings;
  const Sitting& sitting = all[number];
  const bool last = number + 1 == all.size();
  const std::string end = !sitting.ended.empty() ? "to " + sitting.ended : last ? "not ended" : "killed";
  std::string out =
      fmt::format("sitting {} of {}, {} {}: {} visits", number + 1, all.size(), sitting.started, end, figures.visits);
  if (!figures.iops_ratio) return out;
  return out + fmt::format("; IOPS {:.3f} x those of the sittings before (median over the {} points that both have)",
                           *figures.iops_ratio, figures.points_shared);
}

}  // namespace

std::vector<SittingFigures> sitting_figures(const Results& results) {
  std::vector<SittingFigures> out;
  for (std::size_t i = 0; i < results.run.sittings.size(); ++i) out.push_back(figures_of(results, i));
  return out;
}

std::size_t visits_done(const Results& results) {
  std::size_t done = 0;
  for (const PointResult& point : results.points) {
    done += static_cast<std::size_t>(std::count_if(point.repeats.begin(), point.repeats.end(),
                                                   [](const Repeat& repeat) { return !repeat.interrupted; }));
  }
  return done;
}

std::optional<std::size_t> visits_planned(const Results& results) {
  if (results.run.repeats == 0) return std::nullopt;
  return results.run.repeats * results.points.size();
}

std::vector<std::string> run_notes(const Results& results) {
  std::vector<std::string> out;
  const std::size_t done = visits_done(results);
  if (const auto planned = visits_planned(results); planned && done < *planned) {
    out.push_back(fmt::format("not whole: {} of {} visits are measured; 'xblk run --resume' goes on", done, *planned));
  }
  const auto figures = sitting_figures(results);
  if (figures.size() < 2) return out;
  for (std::size_t i = 0; i < figures.size(); ++i) out.push_back(note_of(results, i, figures[i]));
  return out;
}

bool in_different_sittings(const PointResult& a, const PointResult& b) {
  const auto of_a = sittings_of(a);
  const auto of_b = sittings_of(b);
  if (of_a.empty() || of_b.empty()) return false;
  return std::none_of(of_a.begin(), of_a.end(), [&](std::size_t sitting) { return of_b.contains(sitting); });
}

}  // namespace xblk::report
