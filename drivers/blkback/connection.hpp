// Everything that exists between one connect and the next disconnect: rings, ports, mappings, pools. Built whole or not
// at all; stop() gives every grant, page, port and byte back, and the gauges must read zero afterwards.
#pragma once

#include <algorithm>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "drivers/blkback/barrier_gate.hpp"
#include "drivers/blkback/page_options.hpp"
#include "drivers/blkback/pools.hpp"
#include "drivers/blkback/ring.hpp"
#include "drivers/blkback/ring_step.hpp"
#include "drivers/blkif/negotiation.hpp"
#include "drivers/blkif/policy.hpp"
#include "drivers/platform/concepts.hpp"
#include "drivers/store/store.hpp"

namespace xblk::blkback {

template <platform::Platform P>
class Connection {
 public:
  using Env = typename P::Env;
  using Waitable = typename Env::Waitable;

  struct Agreement {
    DomId frontend{};
    blkif::FrontendOffer offer;
    blkif::BackPolicy policy;
    blkif::BackendLimits limits;
    bool readonly = false;
  };

  static Result<std::unique_ptr<Connection>> open(Env& env, typename P::Back& hypervisor, Agreement agreement,
                                                  store::Store& store, std::span<QueueCounters> counters) {
    std::unique_ptr<Connection> connection(
        new Connection(hypervisor, std::move(agreement), store.geometry(), counters));
    connection->make_gate();
    for (std::size_t q = 0; q < connection->agreement_.offer.queues.size(); ++q) {
      if (auto added = connection->add_queue(env, store, q); !added)
        return forward(added.error(), fmt::format("queue {}", q));
    }
    return connection;
  }

  ~Connection() { stop(); }
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  void start(std::span<RingRunner<Waitable>* const> runners) {
    const bool spread = agreement_.policy.queue_map == blkif::QueueMap::spread;
    for (std::size_t q = 0; q < queues_.size(); ++q) {
      queues_[q]->runner = runners[(agreement_.frontend.value() + (spread ? q : 0)) % runners.size()];
      wake_list_.insert(queues_[q]->runner);
    }
    for (auto& queue : queues_) {
      queue->runner->attach(*queue->ring, hypervisor_.waitable(queue->port), completions(*queue));
    }
  }

  // For a frontend whose backend was another one until now: a response that was published without its event would
  // never be looked at. An event too many does no harm.
  void notify_frontend() {
    for (auto& queue : queues_) hypervisor_.notify(queue->port);
  }

  // The store has another size now. Requests taken from here on are held against it.
  void set_capacity(Sectors capacity) {
    geometry_.capacity = capacity;
    for (auto& queue : queues_) queue->ring->set_capacity(capacity);
  }

  // The number of the first ring that its frontend broke.
  [[nodiscard]] std::optional<std::size_t> halted_ring() const {
    const auto halted = std::find_if(queues_.begin(), queues_.end(), [](const auto& q) { return q->ring->halted(); });
    if (halted == queues_.end()) return std::nullopt;
    return static_cast<std::size_t>(halted - queues_.begin());
  }

  // A page could not be mapped for lack of capacity.
  [[nodiscard]] bool short_of_mappings() const {
    return std::any_of(queues_.begin(), queues_.end(), [](const auto& q) { return q->ring->short_of_mappings(); });
  }

  // Idempotent. After it the frontend may do what it likes: nothing of its memory is mapped here.
  void stop() {
    if (gate_ != nullptr) gate_->abort();
    for (auto& queue : queues_) {
      if (queue->runner != nullptr) std::exchange(queue->runner, nullptr)->detach(*queue->ring);
    }
    for (auto& queue : queues_) queue->ring->drop_pools();
    for (auto& queue : queues_) queue->ring->publish_gauges();
    queues_.clear();
  }

  // What this end tells the frontend at Connected.
  [[nodiscard]] blkif::BackendOffer offer() const {
    blkif::BackendOffer offer;
    offer.limits = agreement_.limits;
    offer.sectors = geometry_.capacity;
    offer.info = agreement_.readonly ? blkif::kVdiskReadonly : 0;
    offer.sector_size = geometry_.sector_size;
    offer.physical_sector_size = geometry_.sector_size;
    offer.persistent = agreement_.policy.persistent;  // the offer, not the result (Linux 06ba5d2e943e)
    const auto ordering = agreement_.policy.ordering;
    using blkif::Ordering;
    offer.flush = geometry_.flush && (ordering == Ordering::flush || ordering == Ordering::both);
    // A barrier is made of flushes of the store (Linux offers the two together).
    offer.barrier = geometry_.flush && (ordering == Ordering::barrier || ordering == Ordering::both);
    const auto discard = agreement_.policy.discard;
    offer.discard = discard != blkif::Discard::off && geometry_.discard && !agreement_.readonly;
    offer.discard_secure = offer.discard && discard == blkif::Discard::secure && geometry_.secure_discard;
    offer.discard_granularity = std::max(geometry_.discard_granularity, geometry_.sector_size);
    offer.discard_alignment = geometry_.discard_alignment;
    return offer;
  }

  // The result, which stock drivers publish nowhere: every policy in force, and what became of the offers.
  [[nodiscard]] blkif::PolicyMap negotiated() const {
    blkif::PolicyMap result = blkif::to_keys(agreement_.policy);
    result["persistent"] = persistent() ? "1" : "0";
    result["queues"] = std::to_string(queues_.size());
    result["ring-page-order"] = std::to_string(agreement_.offer.ring_page_order);
    result["indirect-segments"] = std::to_string(agreement_.limits.indirect_segments_max);
    if (persistent()) result["data-path"] = "persistent";
    result["protocol"] = blkif::protocol_name(agreement_.offer.abi);
    return result;
  }

 private:
  struct Queue {
    explicit Queue(typename P::Back& h) : hypervisor(h) {}
    ~Queue() {
      ring.reset();
      if (shared != nullptr) hypervisor.unmap_contiguous(shared, pages);
      if (port != EventPort()) hypervisor.close_port(port);
    }
    typename P::Back& hypervisor;
    std::byte* shared = nullptr;
    std::uint32_t pages = 0;
    EventPort port{};
    std::shared_ptr<Pools<Env>> pools;
    std::unique_ptr<store::Queue> store;
    std::unique_ptr<Ring<P>> ring;
    RingRunner<Waitable>* runner = nullptr;
    Waitable completion{};
  };

  Connection(typename P::Back& hypervisor, Agreement agreement, store::Geometry geometry,
             std::span<QueueCounters> counters)
      : hypervisor_(hypervisor), agreement_(std::move(agreement)), geometry_(geometry), counters_(counters) {}

  void make_gate() {
    const std::size_t rings = agreement_.offer.queues.size();
    if (rings < 2 || !offer().barrier) return;
    gate_ = std::make_unique<BarrierGate>(rings, [this] {
      for (auto* runner : wake_list_) runner->wake();
    });
  }

  [[nodiscard]] bool persistent() const { return agreement_.policy.persistent && agreement_.offer.persistent; }

  Status add_queue(Env& env, store::Store& store, std::size_t q) {
    const blkif::QueueOffer& offered = agreement_.offer.queues[q];
    auto queue = std::make_unique<Queue>(hypervisor_);
    auto mapped = hypervisor_.map_contiguous(agreement_.frontend, offered.ring_refs);
    if (!mapped) return forward(mapped.error(), "ring pages");
    queue->shared = *mapped;
    queue->pages = static_cast<std::uint32_t>(offered.ring_refs.size());
    auto port = hypervisor_.bind_interdomain(agreement_.frontend, offered.event_channel);
    if (!port) return forward(port.error(), "event channel");
    queue->port = *port;
    auto store_queue = store.open_queue();
    if (!store_queue) return forward(store_queue.error(), "backing store");
    queue->store = std::move(*store_queue);
    if (geometry_.asynchronous && !std::is_same_v<Waitable, int>) {
      return fail(EOPNOTSUPP, "this platform cannot wait for a store that finishes later; use null or ram");
    }
    queue->pools = pools_for(env, q);
    queue->ring =
        std::make_unique<Ring<P>>(hypervisor_, ring_config(*queue, q), *queue->pools, *queue->store, counters_[q]);
    if (!queue->ring->attach()) return fail(EIO, "the ring's indexes contradict each other");
    queues_.push_back(std::move(queue));
    return {};
  }

  std::shared_ptr<Pools<Env>> pools_for(Env& env, std::size_t q) {
    const bool shared = agreement_.policy.pools == blkif::Pools::per_device && agreement_.offer.queues.size() > 1;
    if (shared && q > 0) return queues_[0]->pools;
    return std::make_shared<Pools<Env>>(env, page_options(agreement_.policy, persistent()), shared);
  }

  [[nodiscard]] std::uint32_t ring_slots() const {
    return blkif::ring_slots(1u << agreement_.offer.ring_page_order, agreement_.offer.abi);
  }

  RingConfig ring_config(const Queue& queue, std::size_t q) const {
    RingConfig config;
    config.frontend = agreement_.frontend;
    config.abi = agreement_.offer.abi;
    config.shared = queue.shared;
    config.slots = ring_slots();
    config.port = queue.port;
    config.limits.capacity = geometry_.capacity;
    config.limits.sector_size = geometry_.sector_size;
    config.limits.readonly = agreement_.readonly;
    const blkif::BackendOffer offered = offer();
    config.limits.flush = offered.flush;
    config.limits.barrier = offered.barrier;
    config.limits.discard = offered.discard;
    config.limits.discard_secure = offered.discard_secure;
    config.limits.indirect_segments_max = agreement_.limits.indirect_segments_max;
    config.pages = page_options(agreement_.policy, persistent());
    const blkif::BackPolicy& policy = agreement_.policy;
    config.adaptive_polling = policy.polling == blkif::Polling::adaptive;
    config.final_check = policy.final_check;
    config.holdoff = std::min(policy.event_holdoff, config.slots);  // an event further away would never come
    config.holdoff_limit = micros(policy.event_holdoff_us);
    config.number = q;
    config.gate = gate_.get();
    config.reports_pools = q == 0 || agreement_.policy.pools == blkif::Pools::per_queue;
    return config;
  }

  // Stores that finish inside submit() have nothing to wait for.
  static const Waitable* completions(Queue& queue) {
    const int fd = queue.store->completion_fd();
    if (fd < 0) return nullptr;
    if constexpr (std::is_same_v<Waitable, int>) {
      queue.completion = fd;
    }
    return &queue.completion;
  }

  typename P::Back& hypervisor_;
  Agreement agreement_;
  store::Geometry geometry_;
  std::span<QueueCounters> counters_;
  std::set<RingRunner<Waitable>*> wake_list_;  // who steps the rings; unchanged while any of them is attached
  std::unique_ptr<BarrierGate> gate_;
  std::vector<std::unique_ptr<Queue>> queues_;
};

}  // namespace xblk::blkback
