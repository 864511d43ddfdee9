// The device's side of a virtqueue for tests, as the specification tells it, written apart from the driver's side.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>

#include "ci/perf/vhost_user_blk/split_queue.hpp"

namespace xblk::vhost_user {

// Zeroed memory that begins on a page.
class PageMemory {
 public:
  explicit PageMemory(std::size_t bytes) : bytes_(new (std::align_val_t(kPageSize)) std::byte[bytes]{}) {}
  [[nodiscard]] std::byte* base() const { return bytes_.get(); }

 private:
  struct Free {
    void operator()(std::byte* bytes) const { ::operator delete[](bytes, std::align_val_t(kPageSize)); }
  };
  std::unique_ptr<std::byte[], Free> bytes_;
};

class DeviceSide {
 public:
  DeviceSide(const SplitQueue& queue, bool event_index)
      : available_(reinterpret_cast<vring_avail*>(queue.driver_area())),
        used_(reinterpret_cast<vring_used*>(queue.device_area())),
        size_(queue.size()),
        event_index_(event_index) {}

  // The next available chain, or -1.
  int take() {
    if (platform::load_acquire(available_->idx) == taken_) return -1;
    return available_->ring[taken_++ % size_];
  }
  // True: the driver wants an event (2.7.7.2 of the specification).
  bool give_back(std::uint32_t head) {
    used_->ring[used_index_ % size_] = {head, 0};
    const std::uint16_t old = used_index_++;
    if (!event_index_) {
      return (platform::publish_and_load(used_->idx, used_index_, available_->flags) & VRING_AVAIL_F_NO_INTERRUPT) == 0;
    }
    return platform::publish_and_load(used_->idx, used_index_, available_->ring[size_]) == old;
  }
  // Asks for a kick at the next chain, and looks once more: true when there is one.
  bool want_kick() {
    if (!event_index_) {
      constexpr std::uint16_t kNotify = 0;
      return platform::publish_and_load(used_->flags, kNotify, available_->idx) != taken_;
    }
    return platform::publish_and_load(*available_event(), taken_, available_->idx) != taken_;
  }
  void want_no_kick() {
    if (!event_index_) platform::store_release(used_->flags, static_cast<std::uint16_t>(VRING_USED_F_NO_NOTIFY));
  }

 private:
  std::uint16_t* available_event() { return reinterpret_cast<std::uint16_t*>(&used_->ring[size_]); }

  vring_avail* available_;
  vring_used* used_;
  std::size_t size_;
  bool event_index_;
  std::uint16_t taken_ = 0;
  std::uint16_t used_index_ = 0;
};

}  // namespace xblk::vhost_user
