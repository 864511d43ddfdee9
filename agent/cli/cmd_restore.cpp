// xblk restore: puts back what a run that was killed left changed.
#include "agent/cli/command.hpp"
#include "agent/host/linux/linux_host.hpp"
#include "agent/run/emu_rig.hpp"
#include "agent/run/recovery.hpp"
#include "agent/toggle/journal.hpp"

namespace xblk::cli {
namespace {

namespace fs = std::filesystem;

std::string shown(const std::optional<std::string>& value) {
  return value ? "'" + *value + "'" : "absent";
}

int list_journals(const fs::path& directory) {
  const auto journals = toggle::abandoned_journals(directory);
  if (!journals) return complain(kEnvironment, journals.error().message);
  const auto left = run::abandoned_host_directories();
  std::string text;
  for (const fs::path& file : *journals) {
    const auto content = toggle::read_journal(file);
    if (!content) {
      text += fmt::format("{}: {}\n", file.string(), content.error().message);
      continue;
    }
    const bool gone = run::died_with_its_host(*content, left);
    text += fmt::format("{}: of process {}, run {}, xenstore {}{}, {} vbds attached, {} keys changed\n", file.string(),
                        content->pid, content->run.empty() ? "unknown" : content->run, content->xenstore,
                        gone ? " (gone, and the keys with it)" : "", content->attached.size(), content->changes.size());
    for (const auto& created : content->created) text += fmt::format("  {}: created\n", created.path.string());
    for (const auto& change : content->changes) {
      text += fmt::format("  {}: {} -> {}\n", change.path, shown(change.before), shown(change.after));
    }
  }
  for (const fs::path& path : left) text += fmt::format("{}: of a host that is gone\n", path.string());
  return print(text.empty() ? "nothing to restore\n" : text);
}

int restore_all(bool list) {
  const auto directory = toggle::default_state_directory();
  if (!directory) return complain(kEnvironment, directory.error().message);
  if (list) return list_journals(*directory);
  auto host = host::create_linux_host();
  if (!host) return complain(kEnvironment, host.error().message);
  const auto recovery = run::recover(*directory, **host);
  if (!recovery) return complain(kEnvironment, recovery.error().message);
  int code = kOk;
  for (const std::string& problem : recovery->problems) code = complain(kEnvironment, problem);
  std::string text;
  for (const std::string& line : recovery->done) text += line + "\n";
  return print(text.empty() && code == kOk ? "nothing to restore\n" : text, code);
}

}  // namespace

void add_restore(CLI::App& app, Action& action) {
  auto* command = app.add_subcommand("restore", "Put back what a run that was killed left changed in xenstore");
  command->footer(
      "Examples:\n"
      "  xblk restore --list      what would be restored\n"
      "  xblk restore\n"
      "Journals are in $XDG_STATE_HOME/xblk (~/.local/state/xblk). Runs that are still at work are left\n"
      "alone. Exit code 5 when something could not be put back; its journal is then kept.");
  auto list = std::make_shared<bool>(false);
  command->add_flag("--list", *list, "Only show them");
  command->callback([=, &action] { action = [=] { return restore_all(*list); }; });
}

}  // namespace xblk::cli
