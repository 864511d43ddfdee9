// Handles for mappings. The kernel names a mapping by its address alone; but an address is used again at once, so that
// a late second unmap would hit somebody else's page. A handle is not used again until 2^32 others have been.
#pragma once

#include <cstddef>
#include <cstdint>
#include <unordered_map>

#include "drivers/base/units.hpp"

namespace xblk::xen {

// Not thread-safe; XenBack locks around it.
class Mappings {
 public:
  MapHandle add(std::byte* address) {
    while (!addresses_.try_emplace(MapHandle(next_), address).second) ++next_;  // one that has been held very long
    return MapHandle(next_++);
  }
  // The caller may unmap it, and nobody else from now on. False: no such mapping at that address.
  [[nodiscard]] bool claim(MapHandle handle, const std::byte* address) {
    const auto found = addresses_.find(handle);
    if (found == addresses_.end() || found->second != address) return false;
    addresses_.erase(found);
    return true;
  }
  [[nodiscard]] std::size_t size() const { return addresses_.size(); }

 private:
  std::uint32_t next_ = 1;
  std::unordered_map<MapHandle, std::byte*> addresses_;
};

}  // namespace xblk::xen
