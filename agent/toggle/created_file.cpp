#include "agent/toggle/created_file.hpp"

#include <cerrno>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/host/files.hpp"
#include "drivers/base/unique_fd.hpp"

namespace xblk::toggle {

Result<CreatedFile> create_file(const std::filesystem::path& path, Bytes size) {
  const UniqueFd fd(::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (!fd) return tl::unexpected(host::storage_error(errno, "create", path));
  struct stat facts {};
  if (::ftruncate(fd.get(), static_cast<off_t>(size.value())) != 0 || ::fstat(fd.get(), &facts) != 0) {
    const int code = errno;
    ::unlink(path.c_str());
    return tl::unexpected(host::storage_error(code, "create", path));
  }
  return CreatedFile{path, facts.st_dev, facts.st_ino};
}

Result<Removal> remove_created(const CreatedFile& file) {
  struct stat facts {};
  if (::lstat(file.path.c_str(), &facts) != 0) {
    if (errno == ENOENT || errno == ENOTDIR) return Removal::gone;
    return tl::unexpected(host::storage_error(errno, "look at", file.path));
  }
  if (facts.st_dev != file.device || facts.st_ino != file.inode) return Removal::not_ours;
  if (::unlink(file.path.c_str()) != 0) return tl::unexpected(host::storage_error(errno, "remove", file.path));
  return Removal::removed;
}

}  // namespace xblk::toggle
