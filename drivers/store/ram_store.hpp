// Memory of the backend's process, given out lazily by the kernel; a discard gives it back and reads as zeros.
#pragma once

#include <memory>

#include "drivers/store/store.hpp"

namespace xblk::store {

Result<std::unique_ptr<Store>> make_ram_store(Sectors capacity);

}  // namespace xblk::store
