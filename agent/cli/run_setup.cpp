#include "agent/cli/run_setup.hpp"

#include <algorithm>
#include <ctime>

#include <fmt/format.h>

#include "agent/fio/discovery.hpp"
#include "agent/host/files.hpp"
#include "agent/run/recovery.hpp"
#include "agent/run/resume.hpp"

namespace xblk::cli {
namespace {

namespace fs = std::filesystem;
using Setup = tl::expected<RunSetup, SetupError>;

// A visit leaves fio's json+ with histograms and a few snapshots of each guest.
constexpr Bytes kBytesPerGuestVisit{256 * 1024};
constexpr Bytes kBytesPerRun{1024 * 1024};

tl::unexpected<SetupError> refuse(ExitCode code, const std::string& message) {
  return tl::unexpected(SetupError{code, message});
}

fs::path default_directory(const std::string& profile, std::int64_t unix_time_seconds) {
  const std::time_t time = unix_time_seconds;
  std::tm fields{};
  ::localtime_r(&time, &fields);
  char text[32];
  const std::size_t size = std::strftime(text, sizeof text, "%Y%m%d-%H%M%S", &fields);
  return fs::path("runs") / fmt::format("{}-{}", profile, std::string_view(text, size));
}

Bytes space_needed(const run::Schedule& schedule, const std::vector<bool>& measured) {
  Bytes total = kBytesPerRun;
  for (std::size_t i = 0; i < schedule.visits.size(); ++i) {
    if (measured[i]) continue;
    total += kBytesPerGuestVisit * std::uint64_t{schedule.points[schedule.visits[i].point_index].guests};
  }
  return total;
}

// "a/" is "a".
fs::path plain_directory(const fs::path& path) {
  const fs::path absolute = fs::absolute(path).lexically_normal();
  return absolute.has_filename() ? absolute : absolute.parent_path();
}

// Programs and directories: everything that can be found missing before anything is started.
Result<run::ExperimentConfig> find_programs(host::Host& host, const RunOptions& options,
                                            const std::string& command_line) {
  run::ExperimentConfig config{.programs = run::own_programs(), .command_line = command_line};
  const bool is_path = options.fio.find('/') != std::string::npos;
  config.programs.fio = is_path ? fs::absolute(options.fio) : fs::path(options.fio);
  if (auto present = run::check_present(config.programs); !present) return tl::unexpected(present.error());
  const auto found = fio::find(host, config.programs.fio);
  if (!found) return tl::unexpected(found.error());
  if (auto fits = fio::check_engine(*found, fio::engine_version()); !fits) return tl::unexpected(fits.error());
  config.fio_version = found->version_text;
  const auto state = toggle::default_state_directory();
  if (!state) return tl::unexpected(state.error());
  config.state_directory = *state;
  return config;
}

Status find_store_files(RunSetup& setup, const RunOptions& options) {
  setup.config.store_files = run::store_files(setup.schedule);
  return run::check_store_files(setup.config.store_files, setup.schedule.profile.store, options.overwrite);
}

Setup set_up_new(host::Host& host, const RunOptions& options, const std::string& command_line) {
  RunSetup setup;
  auto schedule = options.profile.schedule(host.random_seed() >> 32);  // short enough to be typed
  if (!schedule) return refuse(kUsage, schedule.error().message);
  setup.schedule = *std::move(schedule);
  setup.measured.resize(setup.schedule.visits.size());
  auto config = find_programs(host, options, command_line);
  if (!config) return refuse(kEnvironment, config.error().message);
  setup.config = *std::move(config);
  auto ready = find_store_files(setup, options);
  if (!ready) return refuse(kEnvironment, ready.error().message);
  const std::string& name = setup.schedule.profile.name;
  const fs::path directory =
      plain_directory(options.out.empty() ? default_directory(name, host.unix_time_seconds()) : fs::path(options.out));
  setup.config.run.directory = directory;
  ready = host::create_run_directory(directory, space_needed(setup.schedule, setup.measured));
  if (!ready) return refuse(kEnvironment, ready.error().message);
  auto lock = host::lock_directory(directory);
  if (!lock) return refuse(kEnvironment, lock.error().message);
  setup.lock = *std::move(lock);
  ready = host::write_file_atomically(setup.config.run.profile(), setup.schedule.profile.text);
  if (!ready) return refuse(kEnvironment, ready.error().message);
  return setup;
}

// ---- of a run that goes on ----

// The copy that the run kept, and the one that the user gives again, must be what the run began with.
Status check_profiles(const report::Results& former, const run::RunLayout& layout, const std::string& given) {
  std::error_code ignored;
  for (const fs::path& file : {layout.profile(), fs::path(given)}) {
    if (file.empty() || (file == layout.profile() && !fs::exists(file, ignored))) continue;
    const auto text = host::read_file(file, plan::kYamlBytesMax);
    if (!text) return tl::unexpected(text.error());
    const auto difference = run::profile_difference(former.run.profile_text, *text, file.string());
    if (difference) return fail(EINVAL, *difference);
  }
  return {};
}

Result<report::Results> load_former(const run::RunLayout& layout) {
  std::error_code ignored;
  if (!fs::exists(layout.results(), ignored)) {
    return fail(ENOENT, fmt::format("{} has no results.json, so nothing was measured there; start with 'xblk run'",
                                    layout.directory.string()));
  }
  return report::load_results(layout.results().string());
}

// Before anything else is touched: what the killed process left changed.
Status put_back(host::Host& host, RunSetup& setup) {
  const auto recovery = run::recover(setup.config.state_directory, host, setup.config.run.directory);
  if (!recovery) return tl::unexpected(recovery.error());
  setup.notes.insert(setup.notes.end(), recovery->done.begin(), recovery->done.end());
  if (recovery->problems.empty()) return {};
  return fail(EIO, recovery->problems.front() + "; put it right with 'xblk restore' before the run goes on");
}

Status take_former(host::Host& host, RunSetup& setup, report::Results former) {
  const run::Circumstances now{setup.config.fio_version, report::Json::parse(host.fingerprint().dump())};
  if (former.run.sittings.back().xblk_version != XBLK_VERSION) {
    setup.notes.push_back(fmt::format("warning: the run was measured by xblk {}, this is {}",
                                      former.run.sittings.back().xblk_version, XBLK_VERSION));
  }
  auto kept = run::kept_of(std::move(former), setup.schedule, now);
  if (!kept) return tl::unexpected(kept.error());
  setup.measured = run::measured_visits(*kept, setup.schedule);
  setup.config.former = *std::move(kept);
  return {};
}

Setup set_up_resumed(host::Host& host, const RunOptions& options, const std::string& command_line) {
  const fs::path given = plain_directory(options.resume);
  const run::RunLayout layout{given.filename() == run::RunLayout{}.results() ? given.parent_path() : given};
  auto lock = host::lock_directory(layout.directory);
  if (!lock) return refuse(kEnvironment, "cannot go on: " + lock.error().message);
  RunSetup setup;
  setup.lock = *std::move(lock);
  auto former = load_former(layout);
  if (!former) return refuse(kUsage, former.error().message);
  auto schedule = run::schedule_of(*former, layout.results().string());
  if (!schedule) return refuse(kUsage, schedule.error().message);
  setup.schedule = *std::move(schedule);
  auto ready = check_schedule(setup.schedule);
  if (ready) ready = check_profiles(*former, layout, options.profile.profile);
  if (!ready) return refuse(kUsage, ready.error().message);
  auto config = find_programs(host, options, command_line);
  if (!config) return refuse(kEnvironment, config.error().message);
  setup.config = *std::move(config);
  setup.config.run = layout;
  ready = take_former(host, setup, *std::move(former));
  if (!ready) {
    const ExitCode code = ready.error().code == EINVAL ? kUsage : kEnvironment;
    return refuse(code, layout.directory.string() + ": " + ready.error().message);
  }
  ready = put_back(host, setup);
  if (ready) ready = find_store_files(setup, options);
  if (ready) ready = host::check_space(layout.directory, space_needed(setup.schedule, setup.measured));
  if (!ready) return refuse(kEnvironment, ready.error().message);
  host::remove_unfinished_writes(layout.results());
  host::remove_unfinished_writes(layout.profile());
  const auto kept = std::count(setup.measured.begin(), setup.measured.end(), true);
  setup.notes.push_back(fmt::format("resumed: {} of {} visits are kept", kept, setup.measured.size()));
  return setup;
}

}  // namespace

Setup set_up_run(host::Host& host, const RunOptions& options, const std::string& command_line) {
  return options.resume.empty() ? set_up_new(host, options, command_line) : set_up_resumed(host, options, command_line);
}

}  // namespace xblk::cli
