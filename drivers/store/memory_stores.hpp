// The two stores that need no device: null (accepts everything, keeps nothing, touches no memory) and ram.
#pragma once

#include <memory>

#include "drivers/store/store.hpp"

namespace xblk::store {

std::unique_ptr<Store> make_null_store(Sectors capacity);

// Memory of the backend's process, reserved lazily by the kernel; discard gives it back and reads as zeros.
Result<std::unique_ptr<Store>> make_ram_store(Sectors capacity);

}  // namespace xblk::store
