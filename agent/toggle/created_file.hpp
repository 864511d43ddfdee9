// A file that we made: its path, and what tells it from another one that came to stand there since.
#pragma once

#include <cstdint>
#include <filesystem>

#include "drivers/base/result.hpp"
#include "drivers/base/units.hpp"

namespace xblk::toggle {

struct CreatedFile {
  std::filesystem::path path;
  std::uint64_t device = 0;  // st_dev
  std::uint64_t inode = 0;

  friend bool operator==(const CreatedFile&, const CreatedFile&) = default;
};

// EEXIST when something stands there already. The file has `size` bytes and no blocks.
Result<CreatedFile> create_file(const std::filesystem::path& path, Bytes size);

enum class Removal { removed, gone, not_ours };
Result<Removal> remove_created(const CreatedFile& file);

}  // namespace xblk::toggle
