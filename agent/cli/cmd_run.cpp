// xblk run: the experiment itself.
#include <algorithm>

#include "agent/cli/command.hpp"
#include "agent/cli/progress.hpp"
#include "agent/cli/run_setup.hpp"
#include "agent/host/linux/linux_host.hpp"
#include "agent/report/format.hpp"
#include "agent/report/report.hpp"
#include "agent/report/sittings.hpp"
#include "agent/run/emu_rig.hpp"

namespace xblk::cli {
namespace {

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
  fmt::print(stderr, "xblk: ended by signal {} after {} of {} visits; {}; go on with 'xblk run --resume {}'\n",
             summary.signal, report::visits_done(results), report::visits_planned(results).value_or(0),
             summary.warnings.empty() ? "everything is restored" : "see the warnings", layout.directory.string());
}

int show(const RunOptions& options, const report::Results& results, int code) {
  if (options.json) return print(report::to_json(results).dump(2) + "\n", code);
  return print(report::render_text(results, host::terminal_of(STDOUT_FILENO).colour), code);
}

int run_profile(const RunOptions& options, const std::string& command_line) {
  if (options.profile.profile.empty() && options.resume.empty()) {
    return complain(kUsage, "give a profile, or --resume RUN");
  }
  auto host = host::create_linux_host();
  if (!host) return complain(kEnvironment, host.error().message);
  auto setup = set_up_run(**host, options, command_line);
  if (!setup) return complain(setup.error().code, setup.error().message);
  const run::RunLayout layout = setup->config.run;
  const run::Schedule& schedule = setup->schedule;

  Progress progress(**host, schedule, setup->measured, options.no_progress);
  for (const std::string& note : setup->notes) progress.note(note);
  if (std::find(setup->measured.begin(), setup->measured.end(), false) == setup->measured.end()) {
    progress.note("nothing is left to measure");
    const report::Results& whole = *setup->config.former;
    return show(options, whole, exit_code_of(run::summary_of(whole)));
  }
  progress.note(fmt::format("{}: {} points x {} repeats, load {}, results in {}", schedule.profile.name,
                            schedule.points.size(), schedule.profile.repeats,
                            clock_text(run::load_left(schedule, setup->measured)), layout.directory.string()));
  run::EmuRig rig(**host, setup->config.programs, layout.host_log());
  run::Experiment experiment(**host, rig, std::move(setup->config), schedule, progress);
  const auto summary = experiment.run();
  if (!summary) return complain(kEnvironment, summary.error().message);
  say_what_went_wrong(*summary, experiment.results(), layout);
  return show(options, experiment.results(), exit_code_of(*summary));
}

}  // namespace

void add_run(CLI::App& app, Action& action, const std::string& command_line) {
  auto* command = app.add_subcommand("run", "Measure every point of a profile and prove each result");
  command->footer(
      "Examples:\n"
      "  xblk run profiles/quick.yaml                     about a minute; results in runs/quick-<time>\n"
      "  xblk run profiles/quick.yaml --out runs/a --repeats 5\n"
      "  xblk run profiles/quick.yaml --json --no-progress | jq '.points[] | {id, status}'\n"
      "  xblk run --resume runs/a                         goes on where a run was cut off, however\n"
      "\n"
      "Each visit toggles the policies through xenstore (journalled: 'xblk restore' undoes them after a crash),\n"
      "starts one fio per guest, checks at both ends what was negotiated, and asks the drivers' counters to agree.\n"
      "Ctrl-C, SIGTERM or a hang-up finishes the visit, restores and writes the results; a second one stops at once,\n"
      "still restoring. Results are on disk after every visit: a run that is killed, or whose machine dies, loses "
      "one.\n"
      "--resume keeps the visits that are whole, in the same order, and wants the same profile, machine and fio.\n"
      "Exit codes: 0 every point ok, 2 bad profile, 3 a point was not proven, 4 a point failed,\n"
      "5 the environment does not allow it, 128+n ended by signal n.");
  auto options = std::make_shared<RunOptions>();
  options->profile.add_to(*command);
  auto* resume = command->add_option("--resume", options->resume, "A run to go on with: its directory or results.json");
  for (const char* other : {"--repeats", "--seed", "--platform"}) resume->excludes(command->get_option(other));
  command
      ->add_option("--out", options->out, "Directory for the results; must not exist (default: runs/<profile>-<time>)")
      ->excludes(resume);
  command
      ->add_option("--overwrite", options->overwrite,
                   "A file or device of the profile's store that may lose what is in it; once for each")
      ->allow_extra_args(false);
  command->add_option("--fio", options->fio, "The fio program to use")->capture_default_str();
  command->add_flag("--json", options->json, "The results document on standard output instead of a table");
  command->add_flag("--no-progress", options->no_progress, "Only warnings on standard error");
  command->callback([=, &action] { action = [=] { return run_profile(*options, command_line); }; });
}

}  // namespace xblk::cli
