// xblk restore: puts back what a run that was killed left changed.
#include "agent/cli/command.hpp"
#include "agent/host/linux/linux_host.hpp"
#include "agent/run/emu_rig.hpp"
#include "agent/toggle/journal.hpp"
#include "agent/toggle/keystore_access.hpp"
#include "agent/toggle/restore.hpp"

namespace xblk::cli {
namespace {

namespace fs = std::filesystem;

Result<std::unique_ptr<toggle::KeyAccess>> connect(const std::string& socket) {
  auto client = keystore::Client::connect(socket);
  if (!client) return tl::unexpected(client.error());
  return std::unique_ptr<toggle::KeyAccess>(std::make_unique<toggle::KeystoreAccess>(*std::move(client)));
}

std::string shown(const std::optional<std::string>& value) {
  return value ? "'" + *value + "'" : "absent";
}

// An emulated host keeps its keys in memory, below its own directory: when it is gone, so are they.
bool died_with_its_host(const fs::path& journal, const std::vector<fs::path>& host_directories) {
  const auto content = toggle::read_journal(journal);
  if (!content) return false;
  const fs::path host = fs::path(content->xenstore).parent_path().parent_path();
  std::error_code ignored;
  const bool removed = host.filename().string().starts_with(run::kHostDirectoryPrefix) && !fs::exists(host, ignored);
  return removed || std::find(host_directories.begin(), host_directories.end(), host) != host_directories.end();
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
    const bool gone = died_with_its_host(file, left);
    text += fmt::format("{}: of process {}, xenstore {}{}, {} vbds attached, {} keys changed\n", file.string(),
                        content->pid, content->xenstore, gone ? " (gone, and the keys with it)" : "",
                        content->attached.size(), content->changes.size());
    for (const auto& change : content->changes) {
      text += fmt::format("  {}: {} -> {}\n", change.path, shown(change.before), shown(change.after));
    }
  }
  for (const fs::path& path : left) text += fmt::format("{}: of a host that is gone\n", path.string());
  return print(text.empty() ? "nothing to restore\n" : text);
}

std::string summary_of(const toggle::Restored& restored) {
  return fmt::format("{} keys put back, {} were as before, {} vbds detached, {} keys of vbds that are gone",
                     restored.restored, restored.unchanged, restored.detached, restored.device_gone);
}

Result<std::string> restore_dead_hosts(const fs::path& directory) {
  const auto journals = toggle::abandoned_journals(directory);
  if (!journals) return tl::unexpected(journals.error());
  const auto left = run::abandoned_host_directories();
  std::string text;
  std::error_code ignored;
  for (const fs::path& file : *journals) {
    if (!died_with_its_host(file, left)) continue;
    fs::remove(file, ignored);
    text += fmt::format("{}: its emulated host is gone, and the keys with it; nothing is left to put back\n",
                        file.string());
  }
  for (const fs::path& path : left) {
    fs::remove_all(path, ignored);
    text += fmt::format("{}: removed, its host is gone\n", path.string());
  }
  return text;
}

int restore_all(bool list) {
  const auto directory = toggle::default_state_directory();
  if (!directory) return complain(kEnvironment, directory.error().message);
  if (list) return list_journals(*directory);
  auto host = host::create_linux_host();
  if (!host) return complain(kEnvironment, host.error().message);
  auto text = restore_dead_hosts(*directory);
  if (!text) return complain(kEnvironment, text.error().message);
  const auto reports = toggle::restore_abandoned(*directory, **host, connect);
  if (!reports) return complain(kEnvironment, reports.error().message);
  int code = kOk;
  for (const toggle::RestoreReport& report : *reports) {
    if (!report.unrestorable.empty()) {
      code = complain(kEnvironment, "unrestorable: " + report.unrestorable);
      continue;
    }
    *text += fmt::format("{}: {}\n", report.journal.string(), summary_of(report.restored));
    for (const auto& line : report.restored.forced) *text += "  " + line + "\n";
    for (const auto& line : report.restored.conflicts) code = complain(kEnvironment, "not restored: " + line);
  }
  return print(text->empty() && code == kOk ? "nothing to restore\n" : *text, code);
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
