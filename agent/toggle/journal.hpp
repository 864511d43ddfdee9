// The write-ahead journal: what a key held before we changed it, on disk before we change it, so that `xblk restore`
// can put it back after a crash, a SIGKILL or a power cut. JSON lines; see README.md.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "agent/toggle/created_file.hpp"
#include "agent/toggle/vbd.hpp"
#include "drivers/base/result.hpp"
#include "drivers/base/unique_fd.hpp"

namespace xblk::toggle {

// One change of one key. No value: the key is absent.
struct KeyChange {
  std::string device;  // directory of the vbd's end; when that is gone, there is nothing to restore
  std::string path;
  std::optional<std::string> before;
  std::optional<std::string> after;

  friend bool operator==(const KeyChange&, const KeyChange&) = default;
};

// Of the process that writes.
struct JournalOwner {
  std::string xenstore;  // socket through which the keys were changed; empty: libxenstore's own choice
  std::int64_t unix_time_seconds = 0;
  std::string run = {};  // directory of its results; empty: none
};

class Journal {
 public:
  // Creates a new file in `directory` and locks it until destruction: a locked journal belongs to a running process.
  static Result<Journal> create(const std::filesystem::path& directory, const JournalOwner& owner);

  // On disk when it returns.
  Status record(std::span<const KeyChange> changes);
  Status record_attach(const Vbd& vbd);
  Status record_created(const CreatedFile& file);
  // Everything is as it was before: the file has served its purpose and is removed.
  Status close();

  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

 private:
  Journal(std::filesystem::path path, UniqueFd fd) : path_(std::move(path)), fd_(std::move(fd)) {}
  std::filesystem::path path_;
  UniqueFd fd_;
};

struct JournalContent {
  std::string xenstore;
  std::string run;
  std::int64_t pid = 0;
  std::int64_t unix_time_seconds = 0;
  std::vector<KeyChange> changes;
  std::vector<Vbd> attached;
  std::vector<CreatedFile> created;
  bool truncated = false;  // the last line was being written when the process died: its change was never made
};

// Errors name file and line. Any damage but a truncated last line is an error: guessing would change foreign keys.
Result<JournalContent> read_journal(const std::filesystem::path& file);
Result<JournalContent> parse_journal(std::string_view text, const std::string& file);

// Journals of processes that ended without restoring, oldest first. An absent directory has none.
Result<std::vector<std::filesystem::path>> abandoned_journals(const std::filesystem::path& directory);

// $XDG_STATE_HOME/xblk, or ~/.local/state/xblk.
Result<std::filesystem::path> default_state_directory();

}  // namespace xblk::toggle
