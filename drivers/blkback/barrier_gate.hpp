// A write barrier orders a device's requests across all of its rings (blkif.h, BLKIF_OP_WRITE_BARRIER): what was taken
// before it is finished before it starts, and nothing is taken until it has ended. With one ring the ring sees to that
// alone; this gate is what several rings, on several workers, share.
//
// A ring says when it has requests in flight (enter, leave); the ring with a barrier closes the gate and waits until no
// other ring has any. Of a ring that enters and a ring that closes, at least one sees the other: both publish first and
// look second, with sequentially consistent accesses.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <functional>
#include <utility>
#include <vector>

namespace xblk::blkback {

class BarrierGate {
 public:
  // `wake_workers`: rings that wait for the gate, or for others to drain, are stepped again.
  BarrierGate(std::size_t rings, std::function<void()> wake_workers)
      : busy_(rings), wake_workers_(std::move(wake_workers)) {}

  // ---- any ring ----

  // Before requests are taken. False: another ring's barrier is under way.
  [[nodiscard]] bool enter(std::size_t ring) {
    if (closed_by_another(ring)) return false;
    busy_[ring].value.store(true, std::memory_order_seq_cst);
    if (owner_.load(std::memory_order_seq_cst) == kOpen || owner_.load(std::memory_order_relaxed) == ring) return true;
    leave(ring);
    return false;
  }
  // Nothing is in flight any more. Orders the ring's finished requests before the barrier that waits for them.
  void leave(std::size_t ring) {
    busy_[ring].value.store(false, std::memory_order_seq_cst);
    if (closed_by_another(ring)) wake_workers_();
  }
  [[nodiscard]] bool closed_by_another(std::size_t ring) const {
    const std::size_t owner = owner_.load(std::memory_order_seq_cst);
    return owner != kOpen && owner != ring;
  }

  // ---- a ring with a barrier ----

  // True once no other ring has a request in flight, nor can take one. Asked again at each step until then.
  [[nodiscard]] bool close_and_drained(std::size_t ring) {
    std::size_t expected = kOpen;
    if (!owner_.compare_exchange_strong(expected, ring, std::memory_order_seq_cst) && expected != ring) return false;
    for (std::size_t other = 0; other < busy_.size(); ++other) {
      if (other != ring && busy_[other].value.load(std::memory_order_seq_cst)) return false;
    }
    return true;
  }
  void open() {
    owner_.store(kOpen, std::memory_order_seq_cst);
    wake_workers_();
  }

  // ---- the control thread ----

  // The device disconnects, ring after ring: a barrier that still waits for other rings fails instead.
  void abort() { aborted_.store(true, std::memory_order_release); }
  [[nodiscard]] bool aborted() const { return aborted_.load(std::memory_order_acquire); }

 private:
  static constexpr std::size_t kOpen = ~std::size_t{0};
  struct alignas(64) Flag {  // each written by its own ring at every change between idle and busy
    std::atomic<bool> value{false};
  };
  std::vector<Flag> busy_;
  std::atomic<std::size_t> owner_{kOpen};
  std::atomic<bool> aborted_{false};
  std::function<void()> wake_workers_;
};

}  // namespace xblk::blkback
