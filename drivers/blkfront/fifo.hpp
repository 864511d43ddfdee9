// First in, first out, in one block of memory that is kept: std::deque allocates and frees as it moves on.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

namespace xblk::blkfront {

template <class T>
class Fifo {
 public:
  [[nodiscard]] bool empty() const { return size_ == 0; }
  [[nodiscard]] std::size_t size() const { return size_; }
  [[nodiscard]] const T& front() const { return items_[first_]; }

  void push(const T& item) {
    if (size_ == items_.size()) grow();
    items_[index(size_++)] = item;
  }
  void pop() {
    first_ = index(1);
    --size_;
  }
  // Moves as many as there are, and as fit, into `into`.
  std::size_t take(std::span<T> into) {
    const std::size_t n = std::min(into.size(), size_);
    for (std::size_t i = 0; i < n; ++i) {
      into[i] = front();
      pop();
    }
    return n;
  }
  void clear() { size_ = 0; }

 private:
  static constexpr std::size_t kFirstCapacity = 64;  // capacities are powers of two

  [[nodiscard]] std::size_t index(std::size_t position) const { return (first_ + position) & (items_.size() - 1); }
  void grow() {
    std::rotate(items_.begin(), items_.begin() + static_cast<std::ptrdiff_t>(first_), items_.end());
    first_ = 0;
    items_.resize(std::max(kFirstCapacity, items_.size() * 2));
  }

  std::vector<T> items_;
  std::size_t first_ = 0;
  std::size_t size_ = 0;
};

}  // namespace xblk::blkfront
