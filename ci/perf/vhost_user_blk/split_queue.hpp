// The driver's side of a split virtqueue (Virtual I/O Device 1.2, section 2.7): where its parts lie, what the indexes
// mean, and when the device wants to be told. Knows neither requests nor descriptors' contents; the channel does.
#pragma once

#define VIRTIO_RING_NO_LEGACY 1
#include <linux/virtio_ring.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>

#include "drivers/base/units.hpp"
#include "drivers/platform/barriers.hpp"

namespace xblk::vhost_user {

// Offsets from a page boundary. The specification asks for less (16, 2 and 4 bytes); each part has pages of its own, so
// that what the device writes and what the driver writes never share a cache line.
struct QueueLayout {
  std::uint16_t size = 0;  // descriptors; a power of two

  static constexpr std::size_t kDescriptors = 0;
  [[nodiscard]] constexpr std::size_t available() const { return pages(sizeof(vring_desc) * size); }
  // Each ring ends with the event index of the other side, present whether or not it is negotiated.
  [[nodiscard]] constexpr std::size_t used() const { return available() + pages(6 + 2 * std::size_t{size}); }
  [[nodiscard]] constexpr std::size_t bytes() const { return used() + pages(6 + 8 * std::size_t{size}); }

 private:
  static constexpr std::size_t pages(std::size_t bytes) { return (bytes + kPageSize - 1) / kPageSize * kPageSize; }
};

class SplitQueue {
 public:
  // `memory`: zeroed, page-aligned, layout.bytes() long, shared with the device. Starts with events suppressed.
  SplitQueue(std::byte* memory, QueueLayout layout, bool event_index)
      : descriptors_(reinterpret_cast<vring_desc*>(memory + QueueLayout::kDescriptors)),
        available_(reinterpret_cast<vring_avail*>(memory + layout.available())),
        used_ring_(reinterpret_cast<vring_used*>(memory + layout.used())),
        used_event_(&available_->ring[layout.size]),
        available_event_(reinterpret_cast<std::uint16_t*>(&used_ring_->ring[layout.size])),
        mask_(static_cast<std::uint16_t>(layout.size - 1)),
        event_index_(event_index) {
    suppress();
  }

  [[nodiscard]] std::span<vring_desc> descriptors() const { return {descriptors_, size()}; }
  [[nodiscard]] std::byte* descriptor_area() const { return reinterpret_cast<std::byte*>(descriptors_); }
  [[nodiscard]] std::byte* driver_area() const { return reinterpret_cast<std::byte*>(available_); }
  [[nodiscard]] std::byte* device_area() const { return reinterpret_cast<std::byte*>(used_ring_); }
  [[nodiscard]] std::size_t size() const { return mask_ + std::size_t{1}; }

  // Puts the chain that begins at descriptor `head` on the available ring; the device sees it after publish(). The
  // caller never has more chains under way than there are descriptors, so the ring has always room.
  void push(std::uint16_t head) { available_->ring[next_available_++ & mask_] = head; }

  // Makes everything pushed visible at once. True: the device wants a kick for it.
  [[nodiscard]] bool publish() {
    if (next_available_ == published_) return false;
    const std::uint16_t old = std::exchange(published_, next_available_);
    // Orders the descriptors before the index (release), and the index before the look at what the device wants: it
    // asks for a kick and then reads the index once more, so one of the two sees the other's store.
    if (event_index_) {
      const std::uint16_t event = platform::publish_and_load(available_->idx, published_, *available_event_);
      return vring_need_event(event, published_, old) != 0;
    }
    const std::uint16_t flags = platform::publish_and_load(available_->idx, published_, used_ring_->flags);
    return (flags & VRING_USED_F_NO_NOTIFY) == 0;
  }

  // The head of the next chain that the device has finished with, if there is one. The device is another process: the
  // head is what it claims, and the caller checks it.
  [[nodiscard]] std::optional<std::uint32_t> pop() {
    if (taken_ == seen_used_) {
      // Acquire orders the loads of the ring's entries, and of the status behind them, after this load.
      seen_used_ = platform::load_acquire(used_ring_->idx);
      if (taken_ == seen_used_) return std::nullopt;
    }
    return used_ring_->ring[taken_++ & mask_].id;
  }
  [[nodiscard]] bool has_used() const { return platform::load_acquire(used_ring_->idx) != taken_; }

  // Asks for an event at the next chain used, then looks once more. True: there is one already, do not sleep.
  [[nodiscard]] bool arm() {
    if (event_index_) return platform::publish_and_load(*used_event_, taken_, used_ring_->idx) != taken_;
    constexpr std::uint16_t kInterrupt = 0;
    return platform::publish_and_load(available_->flags, kInterrupt, used_ring_->idx) != taken_;
  }

  // Wants no events. An event index cannot say so for ever, only put the event half the range of the indexes ahead:
  // whoever polls calls keep_suppressed() from time to time.
  void suppress() {
    suppressed_at_ = taken_;
    if (event_index_) {
      platform::store_release(*used_event_, static_cast<std::uint16_t>(taken_ + kFarAhead));
    } else {
      platform::store_release(available_->flags, static_cast<std::uint16_t>(VRING_AVAIL_F_NO_INTERRUPT));
    }
  }
  void keep_suppressed() {
    if (event_index_ && static_cast<std::uint16_t>(taken_ - suppressed_at_) >= kFarAhead / 2) suppress();
  }

 private:
  static constexpr std::uint16_t kFarAhead = 0x8000;

  vring_desc* descriptors_;
  vring_avail* available_;
  vring_used* used_ring_;
  std::uint16_t* used_event_;       // in the driver's ring: where the driver wants an event
  std::uint16_t* available_event_;  // in the device's ring: where the device wants a kick
  std::uint16_t mask_;              // size - 1
  bool event_index_;
  std::uint16_t next_available_ = 0;  // free-running, as all indexes of a virtqueue
  std::uint16_t published_ = 0;
  std::uint16_t seen_used_ = 0;
  std::uint16_t taken_ = 0;
  std::uint16_t suppressed_at_ = 0;
};

}  // namespace xblk::vhost_user
