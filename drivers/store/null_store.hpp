// Accepts everything, keeps nothing, touches no memory: the cost of the path alone.
#pragma once

#include <memory>

#include "drivers/store/store.hpp"

namespace xblk::store {

std::unique_ptr<Store> make_null_store(Sectors capacity);

}  // namespace xblk::store
