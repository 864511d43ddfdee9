// What every command of `xblk` is made of: options declared at a subcommand, and a function that returns the exit code.
#pragma once

#include <cstdio>
#include <functional>
#include <string>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "agent/cli/exit_codes.hpp"
#include "agent/report/results.hpp"
#include "drivers/base/result.hpp"

namespace xblk::cli {

using Action = std::function<int()>;

// Each declares its subcommand and sets `action` when that is the one called.
void add_doctor(CLI::App& app, Action& action);
void add_plan(CLI::App& app, Action& action);
void add_run(CLI::App& app, Action& action, const std::string& command_line);
void add_report(CLI::App& app, Action& action);
void add_compare(CLI::App& app, Action& action);
void add_restore(CLI::App& app, Action& action);
void add_emu(CLI::App& app, Action& action);
void add_vbd(CLI::App& app, Action& action);

// "xblk: <message>" on stderr, one line; returns the code.
int complain(ExitCode code, const std::string& message);

// Results document in a directory of a run, or the file itself.
Result<report::Results> load_results_of(const std::string& path);

// The whole text to stdout; a closed pipe is no error, a full disk is.
int print(const std::string& text, int code = kOk);

// The text to a file beside the results.
int write_or_complain(const std::string& path, const std::string& text);

}  // namespace xblk::cli
