// Whether an operation lies inside a store. Written so that no sum can overflow.
#pragma once

#include "drivers/store/store.hpp"

namespace xblk::store {

[[nodiscard]] inline bool within(const Operation& operation, Sectors capacity) {
  return operation.sector <= capacity && operation.count <= capacity - operation.sector;
}

}  // namespace xblk::store
