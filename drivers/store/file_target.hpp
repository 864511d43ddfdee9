// A file or block device, opened and asked what it can do.
#pragma once

#include <cstdint>
#include <string>

#include "drivers/base/result.hpp"
#include "drivers/base/unique_fd.hpp"
#include "drivers/base/units.hpp"

namespace xblk::store {

struct FileTarget {
  std::string path;
  UniqueFd fd;
  bool block_device = false;
  bool readonly = false;  // it could not be opened for writing
  bool direct = false;    // O_DIRECT is set
  // What transfers must be multiples of, in memory and in the file; with O_DIRECT the kernel insists on it.
  std::uint32_t memory_align = 1;
  std::uint32_t block_bytes = kSectorSize;
  bool discard = false;
  std::uint32_t discard_granularity = kSectorSize;  // bytes
  std::uint32_t discard_alignment = 0;              // bytes

  // As it is now; whole blocks.
  [[nodiscard]] Result<Sectors> size() const;
  // Another open file on the same inode, whatever has become of its name. A write-back error is told once per open file
  // (errseq, Documentation/filesystems/vfs.rst), so queues that shared one would hide it from each other's flushes.
  [[nodiscard]] Result<UniqueFd> reopen() const;
};

// `create`: a file that is not there yet comes to be, empty.
Result<FileTarget> open_file_target(const std::string& path, bool create);

}  // namespace xblk::store
