#include "agent/host/files.hpp"

#include <cstring>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

namespace xblk::host {
namespace {

namespace fs = std::filesystem;

std::string_view advice(int code) {
  switch (code) {
    case ENOSPC:
    case EDQUOT:
      return "free some space or choose another directory";
    case EROFS:
      return "the file system is read-only; choose another directory";
    case EACCES:
    case EPERM:
      return "check its owner and permissions or choose another directory";
    default:
      return "check the path";
  }
}

Status write_all(int fd, std::string_view content, const fs::path& path) {
  while (!content.empty()) {
    const ssize_t n = ::write(fd, content.data(), content.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return tl::unexpected(storage_error(errno, "write", path));
    content.remove_prefix(static_cast<std::size_t>(n));
  }
  return {};
}

constexpr std::string_view kTemporarySuffix = ".tmp";

fs::path nearest_existing(fs::path path) {
  std::error_code ignored;
  while (!path.empty() && !fs::exists(path, ignored)) {
    const fs::path parent = path.parent_path();
    if (parent == path) break;
    path = parent;
  }
  return path.empty() ? fs::path(".") : path;
}

}  // namespace

Error storage_error(int code, std::string_view doing, const fs::path& path) {
  return {code, fmt::format("cannot {} {}: {}; {}", doing, path.string(), std::strerror(code), advice(code))};
}

Result<std::string> read_file(const fs::path& path, std::size_t limit) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd) return fail_errno(fmt::format("cannot read {}", path.string()));
  std::string text;
  char chunk[16384];
  for (;;) {
    const ssize_t n = ::read(fd.get(), chunk, sizeof chunk);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return fail_errno(fmt::format("cannot read {}", path.string()));
    if (n == 0) return text;
    text.append(chunk, static_cast<std::size_t>(n));
    if (text.size() > limit) return fail(EFBIG, fmt::format("{}: longer than {} bytes", path.string(), limit));
  }
}

Status sync_directory(const fs::path& directory) {
  const UniqueFd fd(::open(directory.empty() ? "." : directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd) return tl::unexpected(storage_error(errno, "open", directory));
  // EINVAL: the file system has no notion of syncing a directory; its renames are as durable as they get.
  if (::fsync(fd.get()) != 0 && errno != EINVAL) return tl::unexpected(storage_error(errno, "sync", directory));
  return {};
}

Status write_file_atomically(const fs::path& path, std::string_view content) {
  const fs::path temporary = fs::path(path).concat(fmt::format(".{}{}", ::getpid(), kTemporarySuffix));
  const auto written = [&]() -> Status {
    const UniqueFd fd(::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
    if (!fd) return tl::unexpected(storage_error(errno, "create", temporary));
    if (auto status = write_all(fd.get(), content, path); !status) return status;
    if (::fsync(fd.get()) != 0) return tl::unexpected(storage_error(errno, "sync", path));
    if (::rename(temporary.c_str(), path.c_str()) != 0) return tl::unexpected(storage_error(errno, "write", path));
    return {};
  }();
  if (!written) {
    ::unlink(temporary.c_str());
    return written;
  }
  return sync_directory(path.parent_path());
}

void remove_unfinished_writes(const fs::path& path) {
  const std::string stem = path.filename().string() + ".";
  std::error_code error;
  for (fs::directory_iterator it(path.parent_path(), error), end; !error && it != end; it.increment(error)) {
    const std::string name = it->path().filename().string();
    if (name.starts_with(stem) && name.ends_with(kTemporarySuffix)) ::unlink(it->path().c_str());
  }
}

Result<UniqueFd> lock_directory(const fs::path& directory) {
  UniqueFd fd(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd) return fail_errno("cannot open " + directory.string());
  if (::flock(fd.get(), LOCK_EX | LOCK_NB) == 0) return fd;
  if (errno == EWOULDBLOCK) return fail(EBUSY, directory.string() + " is in use by another process");
  return fail_errno("cannot lock " + directory.string());
}

Status check_space(const fs::path& path, Bytes needed) {
  struct statvfs space {};
  const fs::path root = nearest_existing(path);
  if (::statvfs(root.c_str(), &space) != 0) return tl::unexpected(storage_error(errno, "use", root));
  const Bytes available(static_cast<std::uint64_t>(space.f_bavail) * space.f_frsize);
  if (available >= needed) return {};
  return fail(ENOSPC, fmt::format("{} has {} MiB free, the run needs {} MiB; {}", root.string(),
                                  available.value() >> 20, needed.value() >> 20, advice(ENOSPC)));
}

Status create_run_directory(const fs::path& path, Bytes needed) {
  std::error_code error;
  if (fs::exists(path, error)) {
    return fail(EEXIST, fmt::format("{} exists already; results are never overwritten: choose another directory",
                                    path.string()));
  }
  if (auto space = check_space(path, needed); !space) return space;
  if (!path.parent_path().empty() && !fs::create_directories(path.parent_path(), error) && error) {
    return tl::unexpected(storage_error(error.value(), "create", path.parent_path()));
  }
  if (::mkdir(path.c_str(), 0755) != 0) return tl::unexpected(storage_error(errno, "create", path));
  return {};
}

}  // namespace xblk::host
