// xblk compare: is the new one slower? The exit code is the answer.
#include <unistd.h>

#include "agent/cli/command.hpp"
#include "agent/host/terminal.hpp"
#include "agent/report/report.hpp"

namespace xblk::cli {
namespace {

struct Options {
  std::string base;
  std::string candidate;
  std::string by;
  double threshold_percent = 5;
  bool gate_latency = false;
  bool json = false;
  std::string junit;
  std::string html;
};

Result<report::Comparison> compare_files(const Options& options, report::Results& candidate) {
  report::CompareOptions how{.threshold = options.threshold_percent / 100, .gate_latency = options.gate_latency};
  if (!options.by.empty()) {
    const auto by = report::parse_by_parameter(options.by);
    if (!by) return tl::unexpected(by.error());
    how.by = *by;
  }
  if (options.candidate.empty() && !how.by) return fail(EINVAL, "give a second run, or --by PARAMETER=BASE:NEW");
  const auto base = load_results_of(options.base);
  if (!base) return tl::unexpected(base.error());
  auto loaded = options.candidate.empty() ? base : load_results_of(options.candidate);
  if (!loaded) return tl::unexpected(loaded.error());
  candidate = *std::move(loaded);
  return report::compare(*base, candidate, how);
}

int compare_results(const Options& options) {
  report::Results candidate;
  const auto comparison = compare_files(options, candidate);
  if (!comparison) return complain(kUsage, comparison.error().message);
  if (!options.junit.empty()) {
    if (const int code = write_or_complain(options.junit, report::render_junit(*comparison)); code != kOk) return code;
  }
  if (!options.html.empty()) {
    const int code = write_or_complain(options.html, report::render_html(candidate, &*comparison));
    if (code != kOk) return code;
  }
  const int verdict = report::exit_code(comparison->verdict);
  if (options.json) return print(report::to_json(*comparison).dump(2) + "\n", verdict);
  return print(report::render_text(*comparison, host::terminal_of(STDOUT_FILENO).colour), verdict);
}

}  // namespace

void add_compare(CLI::App& app, Action& action) {
  auto* command = app.add_subcommand("compare", "Compare two runs, or the two values of a parameter in one run");
  command->footer(
      "Examples:\n"
      "  xblk compare runs/before runs/after --threshold 3\n"
      "  xblk compare runs/a --by persistent=on:off       'on' is the base, 'off' the new one\n"
      "Exit codes: 0 no regression, 1 regression, 3 inconclusive or not comparable.\n"
      "Below 5 repeats on a side raw values are shown and no interval.");
  auto options = std::make_shared<Options>();
  command->add_option("base", options->base, "Run to compare with: its directory or results.json")->required();
  command->add_option("new", options->candidate, "Run that is compared; may be left out with --by");
  command->add_option("--by", options->by, "PARAMETER=BASE:NEW: compare points that differ in this parameter only");
  command->add_option("--threshold", options->threshold_percent, "Effects up to this many percent are of no interest")
      ->check(CLI::Range(0.0, 100.0))
      ->capture_default_str();
  command->add_flag("--gate-latency", options->gate_latency, "p99 latency takes part in the verdict");
  command->add_flag("--json", options->json, "The comparison as JSON");
  command->add_option("--junit", options->junit, "Also write JUnit XML to this file");
  command->add_option("--html", options->html, "Also write the new run's page with the comparison to this file");
  command->callback([=, &action] { action = [=] { return compare_results(*options); }; });
}

}  // namespace xblk::cli
