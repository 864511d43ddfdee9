#include "agent/toggle/restore.hpp"

#include <unistd.h>

#include <fmt/format.h>

namespace xblk::toggle {
namespace {

std::string shown(const std::optional<std::string>& value) {
  return value ? "'" + *value + "'" : "absent";
}

Status put(KeyAccess& keys, const std::string& path, const std::optional<std::string>& value) {
  return value ? keys.write(path, *value) : keys.remove(path);
}

Status restore_one(KeyAccess& keys, const KeyChange& change, Restored& outcome) {
  const auto device = read_optional(keys, change.device + "/state");
  if (!device) return tl::unexpected(device.error());
  if (!*device) {
    ++outcome.device_gone;  // writing would create a ghost of it
    return {};
  }
  const auto current = read_optional(keys, change.path);
  if (!current) return tl::unexpected(current.error());
  if (*current == change.before) {
    ++outcome.unchanged;
    return {};
  }
  if (*current != change.after) {
    outcome.conflicts.push_back(fmt::format("{} is {}, neither {} as before nor {} as set: changed by somebody else",
                                            change.path, shown(*current), shown(change.before), shown(change.after)));
    return {};
  }
  if (auto status = put(keys, change.path, change.before); !status) return status;
  const auto verified = read_optional(keys, change.path);
  if (!verified) return tl::unexpected(verified.error());
  if (*verified != change.before) return fail(EIO, fmt::format("{} did not take its old value", change.path));
  ++outcome.restored;
  return {};
}

constexpr Nanos kDetachPatience = seconds(5);

Status detach_all(KeyAccess& keys, host::Host& host, std::span<const Vbd> attached, Restored& outcome) {
  for (const Vbd& vbd : attached) {
    const auto backend = read_optional(keys, vbd.backend_directory() + "/state");
    if (!backend) return tl::unexpected(backend.error());
    if (!*backend) continue;
    const auto status = detach(keys, host, vbd, kDetachPatience);
    if (!status && status.error().code != ETIMEDOUT) return status;
    if (!status) outcome.forced.push_back(status.error().message);
    ++outcome.detached;
  }
  return {};
}

}  // namespace

void remove_created(std::span<const CreatedFile> created, Restored& outcome) {
  for (const CreatedFile& file : created) {
    const auto removal = remove_created(file);
    if (!removal) {
      outcome.conflicts.push_back(removal.error().message);
    } else if (*removal == Removal::not_ours) {
      outcome.conflicts.push_back(file.path.string() + " is not the file that was created; left alone");
    } else if (*removal == Removal::removed) {
      ++outcome.removed;
    }
  }
}

namespace {

bool belongs_to(const std::filesystem::path& journal, const std::filesystem::path& run) {
  const auto content = read_journal(journal);
  return content && content->run == run;
}

RestoreReport restore_file(const std::filesystem::path& file, host::Host& host, const Connector& connect) {
  RestoreReport report;
  report.journal = file;
  const auto content = read_journal(file);
  if (!content) {
    report.unrestorable = content.error().message;
    return report;
  }
  if (!content->changes.empty() || !content->attached.empty()) {
    auto keys = connect(content->xenstore);
    if (!keys) {
      report.unrestorable = fmt::format("{}: its xenstore does not answer ({})", file.string(), keys.error().message);
      return report;
    }
    auto restored = restore(**keys, host, content->attached, content->changes);
    if (!restored) {
      report.unrestorable = fmt::format("{}: {}", file.string(), restored.error().message);
      return report;
    }
    report.restored = *std::move(restored);
  }
  remove_created(content->created, report.restored);
  if (report.complete()) ::unlink(file.c_str());
  return report;
}

}  // namespace

Result<Restored> restore(KeyAccess& keys, host::Host& host, std::span<const Vbd> attached,
                         std::span<const KeyChange> changes) {
  Restored detached;
  if (auto status = detach_all(keys, host, attached, detached); !status) return tl::unexpected(status.error());
  Restored outcome;
  const auto status = keys.transaction([&]() -> Status {
    outcome = detached;
    // Backwards: a key changed twice passes through its middle value to its first.
    for (auto change = changes.rbegin(); change != changes.rend(); ++change) {
      if (auto done = restore_one(keys, *change, outcome); !done) return done;
    }
    return {};
  });
  if (!status) return tl::unexpected(status.error());
  return outcome;
}

Result<std::vector<RestoreReport>> restore_abandoned(const std::filesystem::path& directory, host::Host& host,
                                                     const Connector& connect, const std::filesystem::path& of_run) {
  const auto journals = abandoned_journals(directory);
  if (!journals) return tl::unexpected(journals.error());
  std::vector<RestoreReport> reports;
  // Newest first: runs one after another on the same vbd are undone in reverse, as changes within one are.
  for (auto file = journals->rbegin(); file != journals->rend(); ++file) {
    if (of_run.empty() || belongs_to(*file, of_run)) reports.push_back(restore_file(*file, host, connect));
  }
  return reports;
}

}  // namespace xblk::toggle
