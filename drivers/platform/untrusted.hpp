// Untrusted<T>: a value that lives in memory which a hostile peer can rewrite at any moment.
//
// It cannot be read, compared or copied by accident. `fetch()` is the one way out: one copy, each byte read once
// (XSA-155), into private memory, where validation means something. After that the shared bytes are never looked at
// again.
#pragma once

#include <type_traits>

#include "drivers/platform/barriers.hpp"

namespace xblk::platform {

template <class T>
class Untrusted {
  static_assert(std::is_trivially_copyable_v<T>, "bytes from a peer have no constructors");

 public:
  // `shared` points into a mapping of the peer's memory; it is not read here.
  explicit Untrusted(const void* shared) : shared_(shared) {}
  [[nodiscard]] T fetch() const {
    T copy;
    copy_from_shared(&copy, shared_, sizeof(T));
    return copy;
  }

 private:
  const void* shared_;
};

}  // namespace xblk::platform
