// xblk report: one run's results for people and for other programs.
#include <unistd.h>

#include "agent/cli/command.hpp"
#include "agent/host/terminal.hpp"
#include "agent/report/report.hpp"

namespace xblk::cli {
namespace {

struct ReportOptions {
  std::string results;
  bool csv = false;
  bool json = false;
  bool markdown = false;
  std::string html;
  std::string junit;
};

int report_results(const ReportOptions& options) {
  const auto results = load_results_of(options.results);
  if (!results) return complain(kUsage, results.error().message);
  if (!options.html.empty()) {
    const int code = write_or_complain(options.html, report::render_html(*results, nullptr));
    if (code != kOk) return code;
  }
  if (!options.junit.empty()) {
    if (const int code = write_or_complain(options.junit, report::render_junit(*results)); code != kOk) return code;
  }
  if (options.csv) return print(report::render_csv(*results));
  if (options.json) return print(report::to_json(*results).dump(2) + "\n");
  if (options.markdown) return print(report::render_markdown(*results));
  return print(report::render_text(*results, host::terminal_of(STDOUT_FILENO).colour));
}

}  // namespace

void add_report(CLI::App& app, Action& action) {
  auto* command = app.add_subcommand("report", "Show the results of a run: table, CSV, Markdown, HTML, JUnit");
  command->footer(
      "Examples:\n"
      "  xblk report runs/a\n"
      "  xblk report runs/a --html a.html --junit a.xml\n"
      "  xblk report runs/a --csv > a.csv          one line per repeat, raw values");
  auto options = std::make_shared<ReportOptions>();
  command->add_option("results", options->results, "Directory of a run, or its results.json")->required();
  auto* formats = command->add_option_group("format", "What standard output gets (default: a table)");
  formats->add_flag("--csv", options->csv, "CSV, one line per repeat");
  formats->add_flag("--json", options->json, "The results document");
  formats->add_flag("--markdown", options->markdown, "Markdown tables");
  formats->require_option(0, 1);
  command->add_option("--html", options->html, "Also write one self-contained page with charts to this file");
  command->add_option("--junit", options->junit, "Also write JUnit XML to this file");
  command->callback([=, &action] { action = [=] { return report_results(*options); }; });
}

}  // namespace xblk::cli
