// What a ring knows of a channel: where completions go, and whether somebody sleeps there.
#pragma once

#include <atomic>
#include <cstdint>

#include "drivers/blkfront/block_device.hpp"
#include "drivers/blkfront/fifo.hpp"

namespace xblk::blkfront {

// Everything is under the lock of the ring that the channel is on.
template <class P>
struct Mailbox {
  explicit Mailbox(typename P::Env& env) : signal(env) {}

  Fifo<Completion> ready;
  std::uint32_t in_flight = 0;       // I/Os submitted whose completion is not in `ready` yet
  std::atomic<bool> waiting{false};  // a channel that moves is briefly seen from two rings, each with its own lock
  typename P::Env::Signal signal;

  void deliver(const Completion& completion) {
    ready.push(completion);
    --in_flight;
    wake();
  }
  // One signal per sleep, however many completions end it.
  void wake() {
    if (!waiting.load(std::memory_order_relaxed)) return;
    waiting.store(false, std::memory_order_relaxed);
    signal.raise();
  }
};

}  // namespace xblk::blkfront
