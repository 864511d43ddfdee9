// A caller's channel on one queue: checks the I/O against the device, then speaks to the ring under its lock.
// Part of device.hpp, which includes this file at its end.
#pragma once

#include "drivers/blkfront/device.hpp"
#include "drivers/blkfront/io_check.hpp"

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
    auto status = check(io, queue.ring);
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
    min = std::min(min, static_cast<unsigned>(into.size()));
    Queue* queue = &lock();
    unsigned n = take(*queue, into);
    if (n < min && mailbox_.in_flight > 0) {
      Instant now = device_.env_.now();
      const Instant deadline = now + timeout;
      for (; n < min && mailbox_.in_flight > 0 && now < deadline; now = device_.env_.now()) {
        queue->waiter.wait(mailbox_, now, deadline);
        queue = &same_or_moved(*queue);
        n += take(*queue, into.subspan(n));
      }
      queue->waiter.pass_on();
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
        count_ring_lock(queue->ring.counters(), wait);
        return *queue;
      }
      queue->ring.mutex().unlock();
    }
  }

  // A reconnect may have moved this channel to another queue while it slept.
  Queue& same_or_moved(Queue& queue) {
    if (&queue == queue_.load(std::memory_order_relaxed)) return queue;
    queue.ring.mutex().unlock();
    return lock();
  }

  // What has arrived already is enough: the ring, whose lines the backend writes, is looked at when nothing has.
  unsigned take(Queue& queue, std::span<Completion> into) {
    if (mailbox_.ready.empty()) queue.ring.process_responses();
    return static_cast<unsigned>(mailbox_.ready.take(into));
  }

  [[nodiscard]] Status check(const Io& io, const Ring<P>& ring) const {
    const DeviceInfo& info = ring.device();
    if (auto status = check_io(io, info, device_.features_); !status) return status;
    if (ring.copies() || io.count == Sectors(0) || io.op == IoOp::discard) return {};
    return check_grantable(io, info);
  }

  // The caller's own pages are granted: they must be ours to grant, and hold whole blocks.
  [[nodiscard]] Status check_grantable(const Io& io, const DeviceInfo& info) const {
    const std::byte* const last = io.buffer + to_bytes(io.count).value() - 1;
    if (reinterpret_cast<std::uintptr_t>(io.buffer) % info.sector_size != 0) {
      return fail(EINVAL, fmt::format("the buffer is not aligned to the sector size {}", info.sector_size));
    }
    if (!device_.hypervisor_.frame_of(io.buffer) || !device_.hypervisor_.frame_of(last)) {
      return fail(EINVAL, "the buffer is not grantable memory (use allocate_buffers)");
    }
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
  if (!has_queues)
    return fail(ENODEV, directory_.path() + ": no queue yet; open channels once the device is connected");
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
