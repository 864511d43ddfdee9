#include "agent/cli/progress.hpp"

#include <algorithm>
#include <cstdio>

#include <fmt/format.h>
#include <unistd.h>

#include "agent/report/format.hpp"

namespace xblk::cli {
namespace {

constexpr int kBarWidth = 20;

std::string bar_text(double share) {
  const int full = static_cast<int>(share * kBarWidth);
  return "[" + std::string(static_cast<std::size_t>(full), '#') +
         std::string(static_cast<std::size_t>(kBarWidth - full), '.') + "]";
}

}  // namespace

TimeLeft::TimeLeft(const run::Schedule& schedule, const std::vector<bool>& measured)
    : load_after_(schedule.visits.size() + 1), visits_after_(schedule.visits.size() + 1) {
  for (std::size_t i = schedule.visits.size(); i > 0; --i) {
    load_after_[i - 1] = load_after_[i];
    visits_after_[i - 1] = visits_after_[i];
    if (measured.at(i - 1)) continue;
    load_after_[i - 1] += plan::load_time(schedule.points[schedule.visits[i - 1].point_index]);
    ++visits_after_[i - 1];
  }
}

void TimeLeft::visit_begins(std::size_t position, Instant now) {
  if (!first_position_) {
    first_position_ = position;
    first_begin_ = now;
  }
  position_ = position;
  begin_ = now;
}

Nanos TimeLeft::overhead() const {
  const std::size_t first = first_position_.value_or(position_);
  const std::int64_t done = visits_after_[first] - visits_after_[position_];
  if (done == 0) return run::kVisitOverhead;
  const Nanos spent = (begin_ - first_begin_) - (load_after_[first] - load_after_[position_]);
  return Nanos(std::max<std::int64_t>(spent.value(), 0) / done);
}

Nanos TimeLeft::at(Instant now) const {
  const Nanos left = load_after_[position_] + overhead() * visits_after_[position_] - (now - begin_);
  return std::max(left, Nanos(0));
}

double TimeLeft::share(Instant now) const {
  const auto done = static_cast<double>((now - first_begin_).value());
  const double all = done + static_cast<double>(at(now).value());
  return all > 0 ? std::clamp(done / all, 0.0, 1.0) : 1.0;
}

std::string clock_text(Nanos time) {
  const auto s = (time.value() + 500'000'000) / 1'000'000'000;
  if (s >= 3600) return fmt::format("{}:{:02}:{:02}", s / 3600, s / 60 % 60, s % 60);
  return fmt::format("{}:{:02}", s / 60, s % 60);
}

Progress::Progress(host::Host& host, const run::Schedule& schedule, const std::vector<bool>& measured, bool quiet)
    : host_(host),
      terminal_(host::terminal_of(STDERR_FILENO)),
      bar_(terminal_.interactive && !quiet),
      quiet_(quiet),
      visits_(schedule.visits.size()),
      time_left_(schedule, measured) {}

Progress::~Progress() {
  clear();
}

void Progress::note(const std::string& line) {
  if (quiet_ && !line.starts_with("warning")) return;
  clear();
  fmt::print(stderr, "{}\n", report::printable(line));
}

void Progress::visit_begins(std::size_t position, const plan::Point& point, std::size_t repeat) {
  time_left_.visit_begins(position, host_.now());
  position_ = position;
  current_ = fmt::format("{} #{}", point.id, repeat + 1);
  state_ = run::VisitState::toggling;
  started_ = true;
  draw();
}

void Progress::visit_state(run::VisitState state) {
  state_ = state;
  draw();
}

void Progress::visit_ends(std::size_t position, const plan::Point& point, const report::Repeat& repeat) {
  if (quiet_) return;
  clear();
  const std::string result = repeat.status == report::Outcome::ok && repeat.iops
                                 ? report::human_iops(*repeat.iops) + " IOPS"
                                 : report::printable(repeat.reason);
  fmt::print(stderr, "{:>{}}/{}  {} #{}  {}  {}\n", position + 1, std::to_string(visits_).size(), visits_, point.id,
             repeat.index + 1, to_string(repeat.status), result);
}

void Progress::draw() {
  if (!bar_ || !started_) return;
  const Instant now = host_.now();
  std::string line = fmt::format("{} {}/{} {} left  {}  {}", bar_text(time_left_.share(now)), position_ + 1, visits_,
                                 clock_text(time_left_.at(now)), current_, run::to_string(state_));
  line.resize(std::min(line.size(), static_cast<std::size_t>(std::max(terminal_.columns - 1, 20))));
  fmt::print(stderr, "\r{}\x1b[K", line);
  std::fflush(stderr);
}

void Progress::clear() {
  if (!bar_ || !started_) return;
  fmt::print(stderr, "\r\x1b[K");
  std::fflush(stderr);
}

}  // namespace xblk::cli
