// The bytes of a fuzzer, taken from the front. At their end everything is zero, so a reader needs no check of its own:
// a loop over operations asks empty().
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>

namespace xblk::peer {

class FuzzInput {
 public:
  FuzzInput(const std::uint8_t* data, std::size_t size) : rest_(data, size) {}

  [[nodiscard]] bool empty() const { return rest_.empty(); }
  template <class T = std::uint8_t>
  T take() {
    T value{};
    const std::size_t n = std::min(sizeof value, rest_.size());
    if (n > 0) std::memcpy(&value, rest_.data(), n);
    rest_ = rest_.subspan(n);
    return value;
  }
  // Below `bound`, from one byte.
  std::uint32_t below(std::uint32_t bound) { return take() % bound; }
  // At most `size` bytes, fewer at the end.
  std::span<const std::uint8_t> bytes(std::size_t size) {
    const auto taken = rest_.first(std::min(size, rest_.size()));
    rest_ = rest_.subspan(taken.size());
    return taken;
  }
  std::string text(std::size_t size) {
    const auto taken = bytes(size);
    return {taken.begin(), taken.end()};
  }

 private:
  std::span<const std::uint8_t> rest_;
};

}  // namespace xblk::peer
