// xblk run: the experiment itself.
#include <ctime>

#include "agent/cli/command.hpp"
#include "agent/cli/profile_options.hpp"
#include "agent/cli/progress.hpp"
#include "agent/fio/discovery.hpp"
#include "agent/host/files.hpp"
#include "agent/host/linux/linux_host.hpp"
#include "agent/report/format.hpp"
#include "agent/report/report.hpp"
#include "agent/run/emu_rig.hpp"

namespace xblk::cli {
namespace {

// A visit leaves fio's json+ with histograms and a few snapshots of each guest.
constexpr Bytes kBytesPerGuestVisit{256 * 1024};
constexpr Bytes kBytesPerRun{1024 * 1024};

struct RunOptions {
  ProfileOptions profile;
  std::string out;
  std::string fio = "fio";
  bool json = false;
  bool no_progress = false;
};

std::filesystem::path default_directory(const std::string& profile, std::int64_t unix_time_seconds) {
  const std::time_t time = unix_time_seconds;
  std::tm fields{};
  ::localtime_r(&time, &fields);
  char text[32];
  const std::size_t size = std::strftime(text, sizeof text, "%Y%m%d-%H%M%S", &fields);
  return std::filesystem::path("runs") / fmt::format("{}-{}", profile, std::string_view(text, size));
}

Bytes space_needed(const run::Schedule& schedule) {
  Bytes total = kBytesPerRun;
  for (const plan::Visit& visit : schedule.visits) {
    total += kBytesPerGuestVisit * std::uint64_t{schedule.points[visit.point_index].guests};
  }
  return total;
}

// Everything that can be found missing before anything is started.
Result<run::ExperimentConfig> prepare(host::Host& host, const RunOptions& options, const run::Schedule& schedule,
                                      const std::string& command_line) {
  run::ExperimentConfig config{.programs = run::own_programs(), .command_line = command_line};
  const bool is_path = options.fio.find('/') != std::string::npos;
  config.programs.fio = is_path ? std::filesystem::absolute(options.fio) : std::filesystem::path(options.fio);
  if (auto present = run::check_present(config.programs); !present) return tl::unexpected(present.error());
  const auto found = fio::find(host, config.programs.fio);
  if (!found) return tl::unexpected(found.error());
  if (auto fits = fio::check_engine(*found, fio::engine_version()); !fits) return tl::unexpected(fits.error());
  config.fio_version = found->version_text;
  const auto state = toggle::default_state_directory();
  if (!state) return tl::unexpected(state.error());
  config.state_directory = *state;
  config.run.directory = options.out.empty() ? default_directory(schedule.profile.name, host.unix_time_seconds())
                                             : std::filesystem::path(options.out);
  config.run.directory = std::filesystem::absolute(config.run.directory);
  if (!config.run.directory.has_filename()) config.run.directory = config.run.directory.parent_path();  // "a/" is "a"
  if (auto made = host::create_run_directory(config.run.directory, space_needed(schedule)); !made) {
    return tl::unexpected(made.error());
  }
  auto kept = host::write_file_atomically(config.run.profile(), schedule.profile.text);
  if (!kept) return tl::unexpected(kept.error());
  return config;
}

int exit_code_of(const run::Summary& summary) {
  if (summary.signal != 0) return kSignalBase + summary.signal;
  if (summary.failed > 0) return kMeasurementFailed;
  return summary.inconclusive > 0 ? kInconclusive : kOk;
}

// Beside the results, which may be a document for a program: what a person must know.
void say_what_went_wrong(const run::Summary& summary, const report::Results& results, const run::RunLayout& layout) {
  for (const report::PointResult& point : results.points) {
    if (point.status == report::Outcome::ok || point.repeats.empty()) continue;
    fmt::print(stderr, "xblk: point {} {}: {}\n", point.id, to_string(point.status), report::printable(point.reason));
  }
  if (summary.signal == 0) return;
  std::size_t measured = 0;
  for (const report::PointResult& point : results.points) measured += point.repeats.size();
  fmt::print(stderr, "xblk: ended by signal {} after {} visits; {}, results in {}\n", summary.signal, measured,
             summary.warnings.empty() ? "everything is restored" : "see the warnings", layout.directory.string());
}

int run_profile(const RunOptions& options, const std::string& command_line) {
  auto host = host::create_linux_host();
  if (!host) return complain(kEnvironment, host.error().message);
  auto schedule = options.profile.schedule((*host)->random_seed() >> 32);  // short enough to be typed
  if (!schedule) return complain(kUsage, schedule.error().message);
  auto config = prepare(**host, options, *schedule, command_line);
  if (!config) return complain(kEnvironment, config.error().message);
  const run::RunLayout layout = config->run;

  Progress progress(**host, *schedule, options.no_progress);
  progress.note(fmt::format("{}: {} points x {} repeats, load {}, results in {}", schedule->profile.name,
                            schedule->points.size(), schedule->profile.repeats,
                            clock_text(run::planned_load(*schedule)), layout.directory.string()));
  run::EmuRig rig(**host, config->programs, layout.host_log());
  run::Experiment experiment(**host, rig, *std::move(config), *std::move(schedule), progress);
  const auto summary = experiment.run();
  if (!summary) return complain(kEnvironment, summary.error().message);
  say_what_went_wrong(*summary, experiment.results(), layout);
  const int code = exit_code_of(*summary);
  if (options.json) return print(report::to_json(experiment.results()).dump(2) + "\n", code);
  return print(report::render_text(experiment.results(), host::terminal_of(STDOUT_FILENO).colour), code);
}

}  // namespace

void add_run(CLI::App& app, Action& action, const std::string& command_line) {
  auto* command = app.add_subcommand("run", "Measure every point of a profile and prove each result");
  command->footer(
      "Examples:\n"
      "  xblk run profiles/quick.yaml                     about a minute; results in runs/quick-<time>\n"
      "  xblk run profiles/quick.yaml --out runs/a --repeats 5\n"
      "  xblk run profiles/quick.yaml --json --no-progress | jq '.points[] | {id, status}'\n"
      "\n"
      "Each visit toggles the policies through xenstore (journalled: 'xblk restore' undoes them after a crash),\n"
      "starts one fio per guest, checks at both ends what was negotiated, and asks the drivers' counters to agree.\n"
      "Ctrl-C finishes the visit, restores and writes the results; a second one stops at once, still restoring.\n"
      "Exit codes: 0 every point ok, 2 bad profile, 3 a point was not proven, 4 a point failed,\n"
      "5 the environment does not allow it, 128+n ended by signal n.");
  auto options = std::make_shared<RunOptions>();
  options->profile.add_to(*command);
  command->add_option("--out", options->out,
                      "Directory for the results; must not exist (default: runs/<profile>-<time>)");
  command->add_option("--fio", options->fio, "The fio program to use")->capture_default_str();
  command->add_flag("--json", options->json, "The results document on standard output instead of a table");
  command->add_flag("--no-progress", options->no_progress, "Only warnings on standard error");
  command->callback([=, &action] { action = [=] { return run_profile(*options, command_line); }; });
}

}  // namespace xblk::cli
