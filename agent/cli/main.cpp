// xblk: experiments on the Xen block path from the command line.
#include <csignal>

#include <fmt/format.h>

#include "agent/cli/command.hpp"
#include "agent/fio/job.hpp"

namespace {

using namespace xblk::cli;

constexpr const char* kDescription =
    "xblk measures the Xen paravirtual block path: real fio on the reference drivers, with\n"
    "policies toggled through xenstore, proven at both ends, and explained per I/O.\n"
    "\n"
    "  xblk doctor                                  what works on this machine\n"
    "  xblk plan profiles/quick.yaml                what a run would do; does nothing\n"
    "  xblk run profiles/quick.yaml --out runs/a    measure\n"
    "  xblk report runs/a --html a.html             table, CSV, JUnit, one HTML page\n"
    "  xblk compare runs/a runs/b                   is b slower? exit code 1 if so";

constexpr const char* kFooter =
    "Exit codes: 0 ok, 1 regression, 2 usage or bad profile, 3 inconclusive or not comparable,\n"
    "4 a measurement failed, 5 the environment does not allow it, 128+n ended by signal n.\n"
    "'xblk COMMAND --help' explains a command with examples; man xblk has the whole.";

// As typed, for the results.
std::string command_line(int argc, char** argv) {
  return xblk::fio::shell_quoted({argv, argv + argc});
}

}  // namespace

int main(int argc, char** argv) {
  ::signal(SIGPIPE, SIG_IGN);  // `xblk report | head` ends quietly through print()
  CLI::App app(kDescription, "xblk");
  app.footer(kFooter);
  app.set_version_flag("--version", "xblk " XBLK_VERSION);
  app.require_subcommand(1);
  app.get_formatter()->column_width(34);
  Action action;
  add_doctor(app, action);
  add_plan(app, action);
  add_run(app, action, command_line(argc, argv));
  add_report(app, action);
  add_compare(app, action);
  add_restore(app, action);
  add_emu(app, action);
  add_vbd(app, action);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? kOk : kUsage;
  }
  return action();
}
