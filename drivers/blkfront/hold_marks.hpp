// Whether other queues of the device hold grants or pages of requests, which they will give back: the difference
// between "come again" and "there will never be enough". Read only where a request could not be built.
//
// A queue's mark is odd while it holds something, and changes with each time that it begins to. So a queue that finds
// every other mark even before it tries, fails, and finds the same marks afterwards, has failed although none of them
// held anything meanwhile. What another queue holds was granted, under a lock of the guest, after its mark became odd:
// whoever finds the table full under that lock, because of it, sees the mark too.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "drivers/blkif/negotiation.hpp"

namespace xblk::blkfront {

class HoldMarks {
 public:
  // By the holder of queue's ring lock, before it takes the first page or grant of a request.
  void hold(std::uint32_t queue) { set(queue, get(queue) | 1); }
  // It got none after all.
  void never_held(std::uint32_t queue) { set(queue, get(queue) & ~std::uint64_t{1}); }
  // All is given back.
  void let_go(std::uint32_t queue) { set(queue, (get(queue) | 1) + 1); }

  // Nothing while any other queue holds something; else a number that differs once one has.
  [[nodiscard]] std::optional<std::uint64_t> idle_since(std::uint32_t self) const {
    std::uint64_t sum = 0;
    for (std::uint32_t queue = 0; queue < marks_.size(); ++queue) {
      if (queue == self) continue;
      const std::uint64_t mark = marks_[queue].value.load(std::memory_order_acquire);
      if (mark % 2 != 0) return std::nullopt;
      sum += mark;
    }
    return sum;
  }

 private:
  struct alignas(64) Mark {
    std::atomic<std::uint64_t> value{0};
  };

  [[nodiscard]] std::uint64_t get(std::uint32_t queue) const {
    return marks_[queue].value.load(std::memory_order_relaxed);
  }
  void set(std::uint32_t queue, std::uint64_t mark) { marks_[queue].value.store(mark, std::memory_order_release); }

  std::array<Mark, blkif::kQueuesMax> marks_{};
};

}  // namespace xblk::blkfront
