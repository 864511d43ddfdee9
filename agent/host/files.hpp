// Files that survive a crash: written beside, synced, renamed. Errors say what the user can do.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "drivers/base/result.hpp"
#include "drivers/base/unique_fd.hpp"
#include "drivers/base/units.hpp"

namespace xblk::host {

// Fails with EFBIG above `limit`: input from other programs is never read without a bound.
Result<std::string> read_file(const std::filesystem::path& path, std::size_t limit);

// Readers see the old content or the new, never half; the directory entry is durable on return.
Status write_file_atomically(const std::filesystem::path& path, std::string_view content);

// Temporary files of writers that were killed before they could rename them to `path`.
void remove_unfinished_writes(const std::filesystem::path& path);

Status sync_directory(const std::filesystem::path& directory);

// Held until it is closed or its process ends, however it ends. EBUSY while somebody else holds it.
Result<UniqueFd> lock_directory(const std::filesystem::path& directory);

// ENOSPC when the file system of `path`, or of its nearest parent that exists, has less than `needed` free.
Status check_space(const std::filesystem::path& path, Bytes needed);

// Creates `path` (and its parents). Refuses one that exists, so that results are never overwritten,
// and a file system with less than `needed` free.
Status create_run_directory(const std::filesystem::path& path, Bytes needed);

// "cannot write /x: <errno text>; <what to do>" for the errors a user meets: ENOSPC, EROFS, EACCES, EDQUOT.
Error storage_error(int code, std::string_view doing, const std::filesystem::path& path);

}  // namespace xblk::host
