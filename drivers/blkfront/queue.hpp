// One queue of a device: its ring, who waits on it, and what a connection gives it: ring pages, an event channel,
// pools.
//
// It exists for the device's whole life; a connect builds and attaches it, a disconnect tears it down.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "drivers/base/counters.hpp"
#include "drivers/blkfront/grant_pool.hpp"
#include "drivers/blkfront/ring.hpp"
#include "drivers/blkfront/ring_waiter.hpp"
#include "drivers/blkif/negotiation.hpp"
#include "drivers/platform/concepts.hpp"
#include "drivers/platform/shared_ring.hpp"

namespace xblk::blkfront {

template <class P>
struct Pools {
  std::shared_ptr<GrantPool<P>> data;  // null: the callers' own pages are granted
  std::shared_ptr<GrantPool<P>> indirect;
};

// Holds a ring's lock. For the control thread, whose waits are nobody's I/O.
template <class P>
class HeldRing {
 public:
  explicit HeldRing(Ring<P>& ring) : ring_(ring) {
    platform::LockWait ignored;
    ring_.mutex().lock(ignored);
  }
  ~HeldRing() { ring_.mutex().unlock(); }
  HeldRing(const HeldRing&) = delete;
  HeldRing& operator=(const HeldRing&) = delete;

 private:
  Ring<P>& ring_;
};

template <class P>
class Queue {
 public:
  using Env = typename P::Env;

  Queue(Env& env, typename P::Front& hypervisor, QueueCounters& counters)
      : ring(env, hypervisor, counters), waiter(env, hypervisor, ring), env_(env), hypervisor_(hypervisor) {}

  Ring<P> ring;
  RingWaiter<P> waiter;

  // An empty ring, granted to the backend, and a port that it may bind. What was built before an error is there for
  // tear_down().
  Status build(DomId backend, std::uint32_t pages) {
    auto block = hypervisor_.allocate_pages(backend, pages);
    if (!block) return forward(block.error(), "ring pages");
    ring_pages_ = *block;
    platform::initialise_ring(block->address, pages * kPageSize);
    if (auto granted = grant_ring(backend); !granted) return granted;
    auto port = hypervisor_.allocate_port(backend);
    if (!port) return forward(port.error(), "event channel");
    port_ = *port;
    return {};
  }
  [[nodiscard]] blkif::QueueOffer offer() const { return {ring_refs_, port_}; }

  void attach(RingSetup setup, const Pools<P>& pools, const WaitPolicy& policy) {
    pools_ = pools;
    setup.shared = ring_pages_.address;
    setup.pages = ring_pages_.pages;
    setup.port = port_;
    waiter.watch(port_);
    watched_ = true;
    const HeldRing<P> held(ring);
    waiter.set_policy(policy);
    ring.attach(setup, pools.data, pools.indirect);
  }

  // After detach(). Returns how many pages the backend still holds: they are never reused (XSA-396).
  std::uint32_t tear_down() {
    wait_for_poller();
    if (std::exchange(watched_, false)) waiter.unwatch(port_);
    if (port_ != EventPort()) hypervisor_.close_port(std::exchange(port_, EventPort()));
    std::uint32_t kept = 0;
    PoolCosts costs;
    for (auto* pool : {&pools_.data, &pools_.indirect}) {
      if (*pool != nullptr) kept += (*pool)->release(costs);
    }
    pools_ = {};
    kept += end_ring_grants(costs);
    const HeldRing<P> held(ring);
    ring.counters().add(Counter::grants_ended, costs.ended);
    ring.publish_gauges();
    return kept;
  }

 private:
  // A leader may be reading the ring's index without the lock, for one poll window at most; the page goes after that.
  void wait_for_poller() {
    for (bool polled = true; polled; env_.yield()) {
      const HeldRing<P> held(ring);
      polled = ring.polled;
    }
  }

  Status grant_ring(DomId backend) {
    const HeldRing<P> held(ring);
    for (std::uint32_t i = 0; i < ring_pages_.pages; ++i) {
      const FrameNumber frame(ring_pages_.first_frame.value() + i);
      auto gref = hypervisor_.grant(backend, frame, platform::Access::read_write);
      if (!gref) return forward(gref.error(), "grant of a ring page");
      ring_refs_.push_back(*gref);
      ring.counters().add(Counter::grants_issued);
    }
    return {};
  }

  std::uint32_t end_ring_grants(PoolCosts& costs) {
    std::uint32_t kept = 0;
    for (const GrantRef gref : std::exchange(ring_refs_, {})) {
      if (hypervisor_.end_access(gref)) {
        ++costs.ended;
      } else {
        ++kept;
      }
    }
    if (kept == 0 && ring_pages_.pages > 0) hypervisor_.free_pages(ring_pages_);
    ring_pages_ = {};
    return kept;
  }

  Env& env_;
  typename P::Front& hypervisor_;
  // Of the current connection.
  platform::PageBlock ring_pages_{};
  std::vector<GrantRef> ring_refs_;
  EventPort port_{};
  bool watched_ = false;
  Pools<P> pools_;
};

}  // namespace xblk::blkfront
