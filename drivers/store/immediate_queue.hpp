// A queue of a store that finishes inside submit(): the results wait here for reap().
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "drivers/store/store.hpp"

namespace xblk::store {

class ImmediateQueue : public Queue {
 public:
  unsigned reap(std::span<Finished> into) final {
    const std::size_t n = std::min(into.size(), finished_.size());
    std::copy_n(finished_.begin(), n, into.begin());
    finished_.erase(finished_.begin(), finished_.begin() + static_cast<std::ptrdiff_t>(n));
    return static_cast<unsigned>(n);
  }

 protected:
  void finish(std::uint64_t cookie, int error) { finished_.push_back({cookie, error}); }

 private:
  std::vector<Finished> finished_;
};

}  // namespace xblk::store
