#include "ci/perf/vhost_user_blk/queue.hpp"

#include <poll.h>

#include <algorithm>

#include "drivers/base/check.hpp"

namespace xblk::vhost_user {
namespace {

constexpr unsigned kTurnsPerClockRead = 1024;
constexpr Nanos kLookAfterServer = millis(100);
constexpr std::int64_t kNanosPerMilli = 1'000'000;

int errno_of(std::uint8_t status) {
  switch (status) {
    case VIRTIO_BLK_S_OK:
      return 0;
    case VIRTIO_BLK_S_UNSUPP:
      return EOPNOTSUPP;
    default:
      return EIO;
  }
}

std::uint32_t type_of(blkfront::IoOp op) {
  switch (op) {
    case blkfront::IoOp::read:
      return VIRTIO_BLK_T_IN;
    case blkfront::IoOp::write:
      return VIRTIO_BLK_T_OUT;
    case blkfront::IoOp::flush:
      return VIRTIO_BLK_T_FLUSH;
    case blkfront::IoOp::discard:
      return VIRTIO_BLK_T_DISCARD;
    case blkfront::IoOp::barrier:
      break;
  }
  XBLK_CHECK(false, "submit() refuses what a virtio block device has not");
}

}  // namespace

Queue::Queue(std::byte* memory, env::RealDoorbell kick, env::RealDoorbell call, const QueueOptions& options)
    : ring_(memory, kQueueLayout, options.event_index),
      blocks_(reinterpret_cast<RequestBlock*>(memory + kQueueLayout.bytes())),
      kick_(std::move(kick)),
      call_(std::move(call)),
      options_(options) {
  free_.reserve(kRequestsPerQueue);
  for (std::uint16_t request = kRequestsPerQueue; request-- > 0;) {
    prepare_chain(request);
    free_.push_back(request);
  }
}

// What is the same for every request: addresses of header and status, and the links.
void Queue::prepare_chain(std::uint16_t request) {
  const auto first = static_cast<std::uint16_t>(request * kDescriptorsPerRequest);
  vring_desc* const chain = &ring_.descriptors()[first];
  RequestBlock& block = blocks_[request];
  chain[0] = {reinterpret_cast<std::uintptr_t>(&block.header), sizeof block.header, VRING_DESC_F_NEXT,
              static_cast<std::uint16_t>(first + 1)};
  chain[1].next = static_cast<std::uint16_t>(first + 2);
  chain[2] = {reinterpret_cast<std::uintptr_t>(&block.status), sizeof block.status, VRING_DESC_F_WRITE, 0};
}

Status Queue::submit(const blkfront::Io& io) {
  if (failure_ != 0) return fail(failure_, "the vhost-user server is gone, or completes what it was not asked");
  if (io.op == blkfront::IoOp::barrier || io.secure) {
    return fail(EOPNOTSUPP, "neither barriers nor secure discards here");
  }
  if (free_.empty()) return fail(EAGAIN, "the virtqueue is full");
  const std::uint16_t request = free_.back();
  free_.pop_back();
  slots_[request] = {io.cookie, true};
  ++in_flight_;

  const auto first = static_cast<std::uint16_t>(request * kDescriptorsPerRequest);
  vring_desc* const chain = &ring_.descriptors()[first];
  RequestBlock& block = blocks_[request];
  block.header = {type_of(io.op), 0, io.sector.value()};
  chain[0].next = static_cast<std::uint16_t>(io.op == blkfront::IoOp::flush ? first + 2 : first + 1);
  if (io.op == blkfront::IoOp::discard) {
    block.header.sector = 0;  // the range says it
    block.range = {io.sector.value(), static_cast<std::uint32_t>(io.count.value()), 0};
    chain[1].addr = reinterpret_cast<std::uintptr_t>(&block.range);
    chain[1].len = sizeof block.range;
  } else {
    chain[1].addr = reinterpret_cast<std::uintptr_t>(io.buffer);
    chain[1].len = static_cast<std::uint32_t>(to_bytes(io.count).value());
  }
  chain[1].flags =
      static_cast<std::uint16_t>(VRING_DESC_F_NEXT | (io.op == blkfront::IoOp::read ? VRING_DESC_F_WRITE : 0));
  ring_.push(first);
  return {};
}

void Queue::commit() {
  if (ring_.publish()) kick_.ring();
}

unsigned Queue::reap(unsigned min, std::span<blkfront::Completion> into, Nanos timeout) {
  unsigned n = take(into);
  // The common case of a poller costs no look at the clock.
  if (n < min && in_flight_ > 0 && options_.poll && spin()) n += take(into.subspan(n));
  if (n >= min) return n;
  const Instant deadline = env_.now() + timeout;
  while (n < min && in_flight_ > 0 && env_.now() < deadline) {
    // With more to run than there are CPUs, whoever spins may keep the server itself from running (xblk's adaptive
    // polling looks at the same).
    if (options_.poll && !env_.cpus_oversubscribed()) {
      spin();
      if (env_.now() - looked_ >= kLookAfterServer) look_after_server(Nanos(0));
    } else {
      wait_for_event(deadline);
    }
    n += take(into.subspan(n));
  }
  return n;
}

unsigned Queue::take(std::span<blkfront::Completion> into) {
  unsigned n = 0;
  while (n < into.size()) {
    const auto head = ring_.pop();
    if (!head) break;
    const std::uint32_t request = *head / kDescriptorsPerRequest;
    if (*head % kDescriptorsPerRequest != 0 || request >= kRequestsPerQueue || !slots_[request].in_flight) {
      failure_ = EPROTO;  // it completes what was never asked: nothing of it can be believed any more
      break;
    }
    into[n++] = {slots_[request].cookie, errno_of(blocks_[request].status)};
    slots_[request].in_flight = false;
    --in_flight_;
    free_.push_back(static_cast<std::uint16_t>(request));
  }
  if (options_.poll) ring_.keep_suppressed();
  if (failure_ != 0) [[unlikely]]
    n += take_failed(into.subspan(n));
  return n;
}

// The slots stay taken: a server that lies may still write to their buffers.
unsigned Queue::take_failed(std::span<blkfront::Completion> into) {
  unsigned n = 0;
  for (Slot& slot : slots_) {
    if (n == into.size()) break;
    if (std::exchange(slot.in_flight, false)) into[n++] = {slot.cookie, failure_};
  }
  in_flight_ -= n;
  return n;
}

bool Queue::spin() {
  for (unsigned turn = 0; turn < kTurnsPerClockRead; ++turn) {
    if (ring_.has_used()) return true;
    env_.relax();
  }
  return false;
}

void Queue::wait_for_event(Instant deadline) {
  if (!ring_.arm()) look_after_server(std::min(deadline - env_.now(), kLookAfterServer));
  ring_.suppress();
}

// Waits for an event or the end of the server, whichever comes first.
void Queue::look_after_server(Nanos timeout) {
  std::array<pollfd, 2> sources{pollfd{call_.waitable(), POLLIN, 0}, pollfd{options_.control_socket, POLLRDHUP, 0}};
  const auto milliseconds =
      static_cast<int>((std::max<std::int64_t>(timeout.value(), 0) + kNanosPerMilli - 1) / kNanosPerMilli);
  ::poll(sources.data(), sources.size(), milliseconds);
  call_.consume();
  if ((sources[1].revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0 && failure_ == 0) failure_ = ENODEV;
  looked_ = env_.now();
}

}  // namespace xblk::vhost_user
