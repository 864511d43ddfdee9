#include "drivers/store/file_target.hpp"

#include <fcntl.h>
#include <linux/fs.h>
#include <linux/magic.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <optional>

#include <fmt/format.h>

namespace xblk::store {
namespace {

// What a transfer with O_DIRECT must be a multiple of; nothing: there is no such transfer.
struct Alignment {
  std::uint32_t memory = 0;
  std::uint32_t block = 0;
};

// For kernels before 6.1, and file systems that do not tell: by trying to read.
std::optional<Alignment> try_alignment(int fd) {
  constexpr std::uint32_t kLargest = kPageSize;
  const std::unique_ptr<void, decltype(&std::free)> buffer(std::aligned_alloc(kLargest, kLargest), &std::free);
  for (const std::uint32_t bytes : {static_cast<std::uint32_t>(kSectorSize), kLargest}) {
    if (::pread(fd, buffer.get(), bytes, 0) >= 0) return Alignment{bytes, bytes};
  }
  return std::nullopt;
}

// tmpfs accepts the flag and goes through the page cache all the same. A device's node lies on one, too, and says
// nothing about the device.
bool is_file_on_tmpfs(const FileTarget& target) {
  struct statfs file_system {};
  return !target.block_device && ::fstatfs(target.fd.get(), &file_system) == 0 && file_system.f_type == TMPFS_MAGIC;
}

std::optional<Alignment> direct_alignment(int fd) {
  struct statx facts {};
  if (::statx(fd, "", AT_EMPTY_PATH, STATX_DIOALIGN, &facts) == 0 && (facts.stx_mask & STATX_DIOALIGN) != 0) {
    if (facts.stx_dio_offset_align == 0) return std::nullopt;
    return Alignment{facts.stx_dio_mem_align, facts.stx_dio_offset_align};
  }
  return try_alignment(fd);
}

void choose_direct(FileTarget& target) {
  if (is_file_on_tmpfs(target)) return;
  const int flags = ::fcntl(target.fd.get(), F_GETFL);
  if (::fcntl(target.fd.get(), F_SETFL, flags | O_DIRECT) != 0) return;
  const auto alignment = direct_alignment(target.fd.get());
  if (!alignment) {
    ::fcntl(target.fd.get(), F_SETFL, flags);
    return;
  }
  target.direct = true;
  target.memory_align = alignment->memory;
  target.block_bytes = std::max<std::uint32_t>(alignment->block, kSectorSize);
}

// A queue limit of a block device; those of a partition are its disk's.
std::uint64_t queue_limit(dev_t device, const char* name) {
  const std::string directory = fmt::format("/sys/dev/block/{}:{}", major(device), minor(device));
  for (const char* where : {"queue", "../queue"}) {
    std::uint64_t value = 0;
    if (std::ifstream(fmt::format("{}/{}/{}", directory, where, name)) >> value) return value;
  }
  return 0;
}

// A hole reads as zeros; on a block device that takes write-zeroes, since a plain discard promises nothing.
void choose_discard(FileTarget& target, const struct stat& status) {
  if (target.readonly) return;
  if (target.block_device) {
    target.discard = queue_limit(status.st_rdev, "write_zeroes_max_bytes") > 0;
    const std::uint64_t granularity = queue_limit(status.st_rdev, "discard_granularity");
    target.discard_granularity = std::max(static_cast<std::uint32_t>(granularity), target.block_bytes);
    std::uint32_t alignment = 0;
    std::ifstream(
        fmt::format("/sys/dev/block/{}:{}/discard_alignment", major(status.st_rdev), minor(status.st_rdev))) >>
        alignment;
    target.discard_alignment = alignment;
    return;
  }
  // Behind the end there is nothing to lose, and the file system answers all the same.
  const off_t block = status.st_blksize;
  const off_t behind = (status.st_size + block - 1) / block * block;
  target.discard = ::fallocate(target.fd.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, behind, block) == 0;
  target.discard_granularity = std::max(static_cast<std::uint32_t>(block), target.block_bytes);
}

// Looked at before it is opened: opening a FIFO would block.
Status check_kind(const std::string& path, bool create) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) {
    if (errno == ENOENT && create) return {};
    if (errno == ENOENT) {
      return fail(ENOENT, fmt::format("file store '{}': no such file; write file:SIZE:{} to create it", path, path));
    }
    return fail_errno(fmt::format("file store '{}'", path));
  }
  if (S_ISDIR(status.st_mode)) return fail(EISDIR, fmt::format("file store '{}': is a directory", path));
  if (!S_ISREG(status.st_mode) && !S_ISBLK(status.st_mode))
    return fail(EINVAL, fmt::format("file store '{}': is neither a file nor a block device", path));
  return {};
}

}  // namespace

Result<Sectors> FileTarget::size() const {
  std::uint64_t bytes = 0;
  if (block_device) {
    if (::ioctl(fd.get(), BLKGETSIZE64, &bytes) != 0) return fail_errno(fmt::format("file store '{}': size", path));
  } else {
    struct stat status {};
    if (::fstat(fd.get(), &status) != 0) return fail_errno(fmt::format("file store '{}': size", path));
    bytes = static_cast<std::uint64_t>(status.st_size);
  }
  return Sectors(bytes / block_bytes * block_bytes / kSectorSize);
}

Result<UniqueFd> FileTarget::reopen() const {
  const int flags = (readonly ? O_RDONLY : O_RDWR) | (direct ? O_DIRECT : 0) | O_CLOEXEC;
  UniqueFd again(::open(fmt::format("/proc/self/fd/{}", fd.get()).c_str(), flags));
  if (!again) return fail_errno(fmt::format("file store '{}': open it once more for a queue", path));
  return again;
}

Result<FileTarget> open_file_target(const std::string& path, bool create) {
  if (auto checked = check_kind(path, create); !checked) return tl::unexpected(checked.error());
  FileTarget target;
  target.path = path;
  target.fd = UniqueFd(::open(path.c_str(), O_RDWR | O_CLOEXEC | (create ? O_CREAT : 0), 0600));
  if (!target.fd && (errno == EACCES || errno == EROFS || errno == EPERM)) {
    target.fd = UniqueFd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    target.readonly = true;
  }
  struct stat status {};
  if (!target.fd || ::fstat(target.fd.get(), &status) != 0) return fail_errno(fmt::format("file store '{}'", path));
  target.block_device = S_ISBLK(status.st_mode);
  choose_direct(target);
  choose_discard(target, status);
  return target;
}

}  // namespace xblk::store
