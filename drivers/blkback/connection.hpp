// Everything that exists between one connect and the next disconnect: rings, ports, mappings, pools. Built whole or not
// at all; stop() gives every grant, page, port and byte back, and the gauges must read zero afterwards.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

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
    for (std::size_t q = 0; q < queues_.size(); ++q) {
      Queue& queue = *queues_[q];
      queue.runner = runners[(agreement_.frontend.value() + q) % runners.size()];
      queue.runner->attach(*queue.ring, hypervisor_.waitable(queue.port), completions(queue));
    }
  }

  // Idempotent. After it the frontend may do what it likes: nothing of its memory is mapped here.
  void stop() {
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
    offer.flush = geometry_.flush;
    offer.discard = geometry_.discard && !agreement_.readonly;
    offer.discard_granularity = geometry_.discard_granularity;
    return offer;
  }

  // The result, which stock drivers publish nowhere.
  [[nodiscard]] blkif::KeyList negotiated() const {
    const auto policy = blkif::to_keys(agreement_.policy);
    return {{"persistent", persistent() ? "1" : "0"},
            {"queues", std::to_string(queues_.size())},
            {"ring-page-order", std::to_string(agreement_.offer.ring_page_order)},
            {"indirect-segments", std::to_string(agreement_.limits.indirect_segments_max)},
            {"data-path", persistent() ? "persistent" : policy.at("data-path")},
            {"max-persistent-grants", policy.at("max-persistent-grants")},
            {"pools", policy.at("pools")},
            {"polling", policy.at("polling")},
            {"protocol", std::string(blkif::protocol_name(agreement_.offer.abi))}};
  }

 private:
  // A pair of pools; one per queue, or one for all.
  struct Pools {
    Pools(Env& env, std::uint32_t persistent_cap, std::uint32_t pages_kept)
        : persistent(env, persistent_cap), free_pages(env, pages_kept) {}
    PersistentPool<Env> persistent;
    FreePages<Env> free_pages;
  };

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
    std::shared_ptr<Pools> pools;
    std::unique_ptr<store::Queue> store;
    std::unique_ptr<Ring<P>> ring;
    RingRunner<Waitable>* runner = nullptr;
    Waitable completion{};
  };

  Connection(typename P::Back& hypervisor, Agreement agreement, store::Geometry geometry,
             std::span<QueueCounters> counters)
      : hypervisor_(hypervisor), agreement_(std::move(agreement)), geometry_(geometry), counters_(counters) {}

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
    queue->pools = pools_for(env, q);
    queue->ring = std::make_unique<Ring<P>>(hypervisor_, ring_config(*queue, q), queue->pools->persistent,
                                            queue->pools->free_pages, *queue->store, counters_[q]);
    if (!queue->ring->attach()) return fail(EIO, "the ring's indexes contradict each other");
    queues_.push_back(std::move(queue));
    return {};
  }

  std::shared_ptr<Pools> pools_for(Env& env, std::size_t q) {
    if (agreement_.policy.pools == blkif::Pools::per_device && q > 0) return queues_[0]->pools;
    // As many free pages as a full ring of direct requests uses.
    const std::uint32_t slots = ring_slots();
    return std::make_shared<Pools>(env, agreement_.policy.max_persistent_grants,
                                   slots * static_cast<std::uint32_t>(blkif::kDirectSegmentsMax));
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
    config.limits.flush = geometry_.flush;
    config.limits.discard = geometry_.discard;
    config.limits.indirect_segments_max = agreement_.limits.indirect_segments_max;
    config.path = persistent()                                           ? DataPath::persistent
                  : agreement_.policy.data_path == blkif::DataPath::copy ? DataPath::copy
                                                                         : DataPath::map;
    config.adaptive_polling = agreement_.policy.polling == blkif::Polling::adaptive;
    config.reports_pools = q == 0 || agreement_.policy.pools == blkif::Pools::per_queue;
    return config;
  }

  // Stores that finish inside submit() have nothing to wait for.
  static const Waitable* completions(Queue& queue) {
    const int fd = queue.store->completion_fd();
    if (fd < 0) return nullptr;
    if constexpr (std::is_same_v<Waitable, int>) {
      queue.completion = fd;
      return &queue.completion;
    }
    XBLK_CHECK(false, "a store with a file descriptor needs an Env that waits on file descriptors");
    return nullptr;
  }

  typename P::Back& hypervisor_;
  Agreement agreement_;
  store::Geometry geometry_;
  std::span<QueueCounters> counters_;
  std::vector<std::unique_ptr<Queue>> queues_;
};

}  // namespace xblk::blkback
