// Blocks in a file or on a block device, through io_uring.
#pragma once

#include <memory>
#include <string>

#include "drivers/store/store.hpp"

namespace xblk::store {

// Sectors(0): as large as the file is. Otherwise a file is created or resized; of a block device, or of a file that may
// not be written, the first `size` are used.
Result<std::unique_ptr<Store>> make_file_store(const std::string& path, Sectors size);

}  // namespace xblk::store
