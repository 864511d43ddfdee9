#include "agent/run/experiment.hpp"

#include <algorithm>
#include <ctime>

#include <fmt/format.h>
#include <unistd.h>

#include "agent/run/load.hpp"
#include "agent/run/resume.hpp"
#include "agent/run/visit.hpp"

namespace xblk::run {
namespace {

constexpr Nanos kIdleTime = seconds(1);
constexpr Nanos kDeathPatience = seconds(2);

std::string iso_utc(std::int64_t unix_time_seconds) {
  const std::time_t time = unix_time_seconds;
  std::tm fields{};
  ::gmtime_r(&time, &fields);
  char text[32];
  return {text, std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &fields)};
}

report::Results empty_results(host::Host& host, const ExperimentConfig& config, const Schedule& schedule) {
  report::Results results;
  report::RunInfo& run = results.run;
  run.id = config.run.directory.filename().string();
  run.profile_name = schedule.profile.name;
  run.profile_text = schedule.profile.text;
  run.command_line = config.command_line;
  run.started = iso_utc(host.unix_time_seconds());
  run.platform = schedule.profile.platform;
  run.seed = schedule.profile.seed;
  run.order = plan::to_string(schedule.profile.order);
  run.repeats = schedule.profile.repeats;
  run.xblk_version = XBLK_VERSION;
  run.fio_version = config.fio_version;
  run.fingerprint = report::Json::parse(host.fingerprint().dump());
  for (const plan::Point& point : schedule.points) {
    report::PointResult result;
    result.id = point.id;
    result.params = point.params;
    report::summarise(result);
    results.points.push_back(std::move(result));
  }
  return results;
}

report::Results begin_sitting(report::Results results, host::Host& host, const ExperimentConfig& config) {
  results.run.ended.clear();
  results.run.sittings.push_back({.started = iso_utc(host.unix_time_seconds()),
                                  .ended = "",
                                  .command_line = config.command_line,
                                  .xblk_version = XBLK_VERSION});
  return results;
}

}  // namespace

std::string_view to_string(VisitState state) {
  switch (state) {
    case VisitState::toggling:
      return "toggling";
    case VisitState::starting:
      return "starting";
    case VisitState::connecting:
      return "connecting";
    case VisitState::measuring:
      return "measuring";
    case VisitState::proving:
      return "proving";
    case VisitState::recorded:
      return "recorded";
  }
  return "recorded";
}

Summary summary_of(const report::Results& results) {
  Summary summary;
  for (const report::PointResult& point : results.points) {
    summary.failed += point.status == report::Outcome::failed ? 1 : 0;
    summary.inconclusive += point.status == report::Outcome::inconclusive ? 1 : 0;
  }
  return summary;
}

Experiment::Experiment(host::Host& host, Rig& rig, ExperimentConfig config, Schedule schedule, Observer& observer)
    : host_(host),
      rig_(rig),
      config_(std::move(config)),
      schedule_(std::move(schedule)),
      observer_(observer),
      results_(
          begin_sitting(config_.former ? *config_.former : empty_results(host_, config_, schedule_), host_, config_)),
      measured_(measured_visits(results_, schedule_)) {}

Result<Summary> Experiment::run() {
  auto done = write_results();
  if (done) done = measure_idle();
  if (done) done = visit_all();
  close_session();
  rig_.stop();
  results_.run.sittings.back().ended = results_.run.ended = iso_utc(host_.unix_time_seconds());
  const auto written = write_results();
  if (!done) return tl::unexpected(done.error());
  if (!written) return tl::unexpected(written.error());
  const Summary counted = summary_of(results_);
  summary_.failed = counted.failed;
  summary_.inconclusive = counted.inconclusive;
  return summary_;
}

// Before the first guest: what the machine's shootdown counter does by itself.
Status Experiment::measure_idle() {
  observer_.note("measuring the idle rate of TLB shootdowns for 1 s");
  const auto rate = metrics::measure_idle_tlb_rate(host_, kIdleTime);
  if (rate) {
    idle_tlb_rate_ = *rate;
  } else if (rate.error().code != EINTR) {
    warn(rate.error().message);
  }
  return {};
}

Status Experiment::visit_all() {
  for (std::size_t position = 0; position < schedule_.visits.size(); ++position) {
    if (measured_[position]) continue;
    if (const auto signals = host_.signals(); signals.stage > 0) {
      summary_.signal = signals.signal;
      return {};
    }
    if (auto done = visit(position); !done) return done;
  }
  const auto signals = host_.signals();
  if (signals.stage > 0) summary_.signal = signals.signal;
  return {};
}

Status Experiment::visit(std::size_t position) {
  const plan::Visit& planned = schedule_.visits[position];
  const plan::Point& point = schedule_.points[planned.point_index];
  observer_.visit_begins(position, point, planned.repeat);
  if (auto ready = ensure_session(rig_spec_of(schedule_, point)); !ready) return ready;
  const VisitContext context{.host = host_,
                             .rig = rig_,
                             .toggle = *session_->toggle,
                             .programs = config_.programs,
                             .run = config_.run,
                             .store_answers_late = plan::answers_late(schedule_.profile.store),
                             .idle_tlb_rate = idle_tlb_rate_,
                             .observer = observer_};
  auto repeat = Visit(context, point, planned.repeat, position).run();
  if (!repeat) return tl::unexpected(repeat.error());
  repeat->sitting = results_.run.sittings.size() - 1;
  // What ends us may have ended its fio or its host too: a machine that shuts down asks every process to end.
  repeat->interrupted = repeat->status != report::Outcome::ok && host_.signals().stage > 0;
  observer_.visit_ends(position, point, *repeat);
  report::PointResult& result = results_.points[planned.point_index];
  result.repeats.push_back(*std::move(repeat));
  report::summarise(result);
  if (rig_.failure()) close_session();
  return write_results();
}

Status Experiment::ensure_session(const RigSpec& spec) {
  if (session_ && session_->spec == spec) return {};
  close_session();
  if (auto started = rig_.start(spec); !started) return started;
  auto journal = toggle::Journal::create(
      config_.state_directory,
      {rig_.layout().xenstore_socket().string(), host_.unix_time_seconds(), config_.run.directory.string()});
  if (!journal) return tl::unexpected(journal.error());
  session_.emplace(Session{.spec = spec, .journal = journal->path()});
  session_->toggle = std::make_unique<toggle::Toggle>(rig_.keys(), host_, *std::move(journal));
  for (unsigned guest = 1; guest <= spec.guests; ++guest) {
    if (auto attached = attach_disk(guest); !attached) return attached;
  }
  return {};
}

Status Experiment::attach_disk(unsigned guest) {
  toggle::VbdConfig disk{.vbd = vbd_of(guest), .params = plan::store_of_guest(schedule_.profile.store, guest)};
  if (guest <= config_.store_files.size()) {
    const StoreFile& file = config_.store_files[guest - 1];
    disk.writable = file.use != StoreFileUse::read;
    if (file.use == StoreFileUse::create) {
      if (auto created = session_->toggle->create_file(file.path, file.size); !created) return created;
    }
  }
  return session_->toggle->attach(disk);
}

void Experiment::close_session() {
  if (!session_) return;
  if (!rig_.failure()) restore_session();
  const auto journal = session_->journal;
  session_.reset();
  // The keys were in the machine's own xenstored: they died with it, and nothing is left to put back.
  if (rig_.failure()) ::unlink(journal.c_str());
}

void Experiment::restore_session() {
  const auto restored = session_->toggle->restore();
  if (!restored) {
    // A xenstored that does not answer may be the first sign of a machine that is going down.
    const Instant deadline = host_.now() + kDeathPatience;
    while (!rig_.failure() && host_.now() < deadline) host_.wait({}, host_.now() + millis(10));
    if (!rig_.failure()) warn(fmt::format("not restored: {}; 'xblk restore' tries again", restored.error().message));
    return;
  }
  for (const std::string& line : restored->conflicts) warn(line);
  for (const std::string& line : restored->forced) warn(line);
}

Status Experiment::write_results() {
  return report::write_results(config_.run.results().string(), results_);
}

void Experiment::warn(const std::string& line) {
  summary_.warnings.push_back(line);
  observer_.note("warning: " + line);
}

}  // namespace xblk::run
