#include "agent/run/recovery.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "agent/run/emu_rig.hpp"
#include "agent/toggle/keystore_access.hpp"
#include "agent/toggle/restore.hpp"

namespace xblk::run {
namespace {

namespace fs = std::filesystem;

Result<std::unique_ptr<toggle::KeyAccess>> connect(const std::string& socket) {
  auto client = keystore::Client::connect(socket);
  if (!client) return tl::unexpected(client.error());
  return std::unique_ptr<toggle::KeyAccess>(std::make_unique<toggle::KeystoreAccess>(*std::move(client)));
}

constexpr Nanos kHostDeathPatience = seconds(5);
constexpr Nanos kDeathInterval = millis(5);

fs::path host_directory_of(const toggle::JournalContent& journal) {
  return fs::path(journal.xenstore).parent_path().parent_path();
}

bool is_private_host(const fs::path& directory) {
  return directory.filename().string().starts_with(kHostDirectoryPrefix);
}

// The kernel ends a private host with its run, but a moment after it: the journal may be free while the host still
// dies.
bool some_host_is_dying(const std::vector<fs::path>& journals) {
  const auto left = abandoned_host_directories();
  return std::any_of(journals.begin(), journals.end(), [&](const fs::path& file) {
    const auto content = toggle::read_journal(file);
    return content && is_private_host(host_directory_of(*content)) && !died_with_its_host(*content, left);
  });
}

Status clear_dead_hosts(const fs::path& state_directory, host::Host& host, Recovery& recovery) {
  const auto journals = toggle::abandoned_journals(state_directory);
  if (!journals) return tl::unexpected(journals.error());
  const Instant deadline = host.now() + kHostDeathPatience;
  while (some_host_is_dying(*journals) && host.now() < deadline) host.wait({}, host.now() + kDeathInterval);
  const auto left = abandoned_host_directories();
  std::error_code ignored;
  for (const fs::path& file : *journals) {
    const auto content = toggle::read_journal(file);
    if (!content || !died_with_its_host(*content, left)) continue;
    toggle::Restored files;
    toggle::remove_created(content->created, files);
    for (const std::string& line : files.conflicts) recovery.problems.push_back("not restored: " + line);
    fs::remove(file, ignored);
    recovery.done.push_back(fmt::format("{}: its emulated host is gone, and the keys with it; {} files removed",
                                        file.string(), files.removed));
  }
  for (const fs::path& path : left) {
    fs::remove_all(path, ignored);
    recovery.done.push_back(path.string() + ": removed, its host is gone");
  }
  return {};
}

std::string summary_of(const toggle::Restored& restored) {
  return fmt::format(
      "{} keys put back, {} were as before, {} vbds detached, {} keys of vbds that are gone, {} files removed",
      restored.restored, restored.unchanged, restored.detached, restored.device_gone, restored.removed);
}

}  // namespace

bool died_with_its_host(const toggle::JournalContent& journal, const std::vector<fs::path>& left) {
  const fs::path host = host_directory_of(journal);
  std::error_code ignored;
  const bool removed = is_private_host(host) && !fs::exists(host, ignored);
  return removed || std::find(left.begin(), left.end(), host) != left.end();
}

Result<Recovery> recover(const fs::path& state_directory, host::Host& host, const fs::path& of_run) {
  Recovery recovery;
  if (auto cleared = clear_dead_hosts(state_directory, host, recovery); !cleared)
    return tl::unexpected(cleared.error());
  const auto reports = toggle::restore_abandoned(state_directory, host, connect, of_run);
  if (!reports) return tl::unexpected(reports.error());
  for (const toggle::RestoreReport& report : *reports) {
    if (!report.unrestorable.empty()) {
      recovery.problems.push_back("unrestorable: " + report.unrestorable);
      continue;
    }
    recovery.done.push_back(report.journal.string() + ": " + summary_of(report.restored));
    for (const std::string& line : report.restored.forced) recovery.done.push_back("  " + line);
    for (const std::string& line : report.restored.conflicts) recovery.problems.push_back("not restored: " + line);
  }
  return recovery;
}

}  // namespace xblk::run
