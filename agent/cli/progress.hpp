// What a run shows on stderr: a bar with the time left on a terminal, one plain line per visit otherwise.
#pragma once

#include "agent/host/host.hpp"
#include "agent/host/terminal.hpp"
#include "agent/run/experiment.hpp"

namespace xblk::cli {

// Time left: load still to come, and for what surrounds it the mean of the visits so far.
class TimeLeft {
 public:
  // `measured`, by position: visits of sittings before, which are passed over.
  TimeLeft(const run::Schedule& schedule, const std::vector<bool>& measured);
  void visit_begins(std::size_t position, Instant now);
  [[nodiscard]] Nanos at(Instant now) const;
  // 0 to 1, of the load.
  [[nodiscard]] double share(Instant now) const;

 private:
  [[nodiscard]] Nanos overhead() const;

  // Of the visits from this position on that are still to be made.
  std::vector<Nanos> load_after_;
  std::vector<std::int64_t> visits_after_;
  std::size_t position_ = 0;
  std::optional<std::size_t> first_position_;
  Instant first_begin_;
  Instant begin_;
};

// "1:05", "2:10:00".
std::string clock_text(Nanos time);

class Progress final : public run::Observer {
 public:
  Progress(host::Host& host, const run::Schedule& schedule, const std::vector<bool>& measured, bool quiet);
  ~Progress() override;

  void note(const std::string& line) override;
  void visit_begins(std::size_t position, const plan::Point& point, std::size_t repeat) override;
  void visit_state(run::VisitState state) override;
  void tick() override { draw(); }
  void visit_ends(std::size_t position, const plan::Point& point, const report::Repeat& repeat) override;

 private:
  void draw();
  void clear();

  host::Host& host_;
  host::Terminal terminal_;
  bool bar_;
  bool quiet_;
  std::size_t visits_;
  TimeLeft time_left_;
  std::string current_;
  run::VisitState state_ = run::VisitState::toggling;
  std::size_t position_ = 0;
  bool started_ = false;
};

}  // namespace xblk::cli
