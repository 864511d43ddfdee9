// A caller's channel on one queue: checks the I/O against the device, then speaks to the ring under its lock.
// Part of device.hpp, which includes this file at its end.
#pragma once

#include "drivers/blkfront/device.hpp"

namespace xblk::blkfront {

template <platform::Platform P>
class Device<P>::QueueChannel final : public Channel {
 public:
  QueueChannel(Device& device, unsigned number) : device_(device), number_(number), mailbox_(device.env_) {
    platform::LockWait ignored;
    device_.channels_mutex_.lock(ignored);
    device_.channels_.push_back(this);
    enter(*device_.queues_[number % device_.attached_queues_]);
    device_.channels_mutex_.unlock();
  }

  ~QueueChannel() override {
    platform::LockWait ignored;
    device_.channels_mutex_.lock(ignored);
    std::erase(device_.channels_, this);
    {
      Queue& queue = lock();
      queue.ring.disown(mailbox_);
      queue.ring.mutex().unlock();
    }
    device_.channels_mutex_.unlock();
  }

  Status submit(const Io& io) override {
    Queue& queue = lock();
    auto status = validate(io, queue.ring.device());
    if (status) status = queue.ring.submit(io, mailbox_);
    queue.ring.mutex().unlock();
    return status;
  }

  void commit() override {
    Queue& queue = lock();
    queue.ring.commit();
    queue.ring.mutex().unlock();
  }

  unsigned reap(unsigned min, std::span<Completion> into, Nanos timeout) override {
    Queue* queue = &lock();
    unsigned n = take(*queue, into);
    if (n < min) {
      const Instant deadline = device_.env_.now() + timeout;
      while (n < min && device_.env_.now() < deadline) {
        queue->waiter.wait(mailbox_, deadline);
        // A reconnect may have moved this channel to another queue while it slept.
        if (queue != queue_.load(std::memory_order_relaxed)) {
          queue->ring.mutex().unlock();
          queue = &lock();
        }
        n += take(*queue, into.subspan(n));
      }
    }
    queue->ring.mutex().unlock();
    return n;
  }

  // Under channels_mutex_ (a reconnect, or the constructor): from now on this channel uses `to`.
  void move_to(Queue& to) {
    Queue& from = lock();
    if (&from == &to) {
      from.ring.mutex().unlock();
      return;
    }
    std::erase(from.ring.mailboxes, &mailbox_);
    enter(to);
    from.ring.mutex().unlock();
    mailbox_.signal.raise();
    from.waiter.wake();
  }
  [[nodiscard]] unsigned number() const { return number_; }

 private:
  void enter(Queue& to) {
    const Held held(to.ring);
    to.ring.mailboxes.push_back(&mailbox_);
    queue_.store(&to, std::memory_order_relaxed);
  }

  // The lock of the queue that this channel is on; the pointer changes only under that lock.
  Queue& lock() {
    for (;;) {
      Queue* const queue = queue_.load(std::memory_order_relaxed);
      platform::LockWait wait;
      queue->ring.mutex().lock(wait);
      if (queue == queue_.load(std::memory_order_relaxed)) {
        queue->ring.count_ring_lock(wait);
        return *queue;
      }
      queue->ring.mutex().unlock();
    }
  }

  unsigned take(Queue& queue, std::span<Completion> into) {
    queue.ring.process_responses();
    const std::size_t n = std::min(into.size(), mailbox_.ready.size());
    std::copy_n(mailbox_.ready.begin(), n, into.begin());
    mailbox_.ready.erase(mailbox_.ready.begin(), mailbox_.ready.begin() + static_cast<std::ptrdiff_t>(n));
    return static_cast<unsigned>(n);
  }

  [[nodiscard]] Status validate(const Io& io, const DeviceInfo& info) const {
    if (io.op == IoOp::flush) return info.negotiated.flush ? Status{} : fail(EOPNOTSUPP, kFlushUnsupported);
    const std::uint64_t unit = info.sector_size / kSectorSize;
    if (io.count.value() == 0 || io.sector.value() % unit != 0 || io.count.value() % unit != 0) {
      return fail(EINVAL, fmt::format("sector {} + {}: not a multiple of the sector size {}", io.sector.value(),
                                      io.count.value(), info.sector_size));
    }
    if (io.sector.value() > info.capacity.value() || io.count.value() > info.capacity.value() - io.sector.value()) {
      return fail(EINVAL, fmt::format("sector {} + {}: beyond the device's {} sectors", io.sector.value(),
                                      io.count.value(), info.capacity.value()));
    }
    if (io.op != IoOp::read && info.readonly) return fail(EROFS, "the device is read-only");
    if (io.op == IoOp::discard)
      return info.negotiated.discard ? Status{} : fail(EOPNOTSUPP, "the backend offers no feature-discard");
    return validate_buffer(io, info);
  }

  [[nodiscard]] Status validate_buffer(const Io& io, const DeviceInfo& info) const {
    const auto address = reinterpret_cast<std::uintptr_t>(io.buffer);
    if (address % kSectorSize != 0) return fail(EINVAL, "the buffer is not aligned to 512 bytes");
    if (info.negotiated.persistent) return {};  // copied through granted pages: any memory does
    const std::byte* const first = io.buffer - address % kPageSize;
    const std::byte* const last = io.buffer + to_bytes(io.count).value() - 1;
    const auto first_frame = device_.hypervisor_.frame_of(first);
    const auto last_frame = device_.hypervisor_.frame_of(last - reinterpret_cast<std::uintptr_t>(last) % kPageSize);
    if (!first_frame || !last_frame) return fail(EINVAL, "the buffer is not grantable memory (use allocate_buffers)");
    return {};
  }

  Device& device_;
  unsigned number_;
  Mailbox<P> mailbox_;
  std::atomic<Queue*> queue_{nullptr};
};

template <platform::Platform P>
Result<std::unique_ptr<Channel>> Device<P>::open_channel(unsigned number) {
  platform::LockWait ignored;
  channels_mutex_.lock(ignored);
  const bool has_queues = !queues_.empty();
  channels_mutex_.unlock();
  if (!has_queues) return fail(ENODEV, options_.path + ": no queue yet; open channels once the device is connected");
  return std::make_unique<QueueChannel>(*this, number);
}

template <platform::Platform P>
void Device<P>::move_channels(std::uint32_t queues) {
  platform::LockWait ignored;
  channels_mutex_.lock(ignored);
  attached_queues_ = queues;
  for (QueueChannel* channel : channels_) channel->move_to(*queues_[channel->number() % queues]);
  channels_mutex_.unlock();
}

}  // namespace xblk::blkfront
