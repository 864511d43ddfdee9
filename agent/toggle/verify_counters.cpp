#include <algorithm>
#include <bit>

#include <fmt/format.h>

#include "agent/toggle/checklist.hpp"
#include "agent/toggle/verify.hpp"
#include "drivers/blkif/ring_layout.hpp"
#include "drivers/blkif/wire.hpp"

namespace xblk::toggle {
namespace {

using blkif::DataPath;

// Differences over the window. A sample is taken while the drivers count, so two counters of one event may be one
// request apart.
class Window {
 public:
  Window(const Agreement& agreement, const CounterProof& proof) : agreement_(agreement), proof_(proof) {}

  [[nodiscard]] std::uint64_t front(Counter counter) const {
    return proof_.front_end.total(counter) - proof_.front_begin.total(counter);
  }
  [[nodiscard]] std::uint64_t back(Counter counter) const {
    return proof_.back_end.total(counter) - proof_.back_begin.total(counter);
  }
  [[nodiscard]] std::uint64_t back_of_queue(std::size_t queue, Counter counter) const {
    const auto& begin = proof_.back_begin.queues;
    return proof_.back_end.queues[queue].get(counter) - (queue < begin.size() ? begin[queue].get(counter) : 0);
  }
  [[nodiscard]] const StatisticsSample& back_now() const { return proof_.back_end; }
  [[nodiscard]] const CountedLoad& load() const { return proof_.load; }

  // Bytes of the largest ring request that an I/O of `block` becomes.
  [[nodiscard]] std::optional<std::uint64_t> largest_request() const {
    if (!proof_.load.block) return std::nullopt;
    const std::uint64_t segments = std::max<std::uint64_t>(agreement_.indirect_segments, blkif::kDirectSegmentsMax);
    return std::min(proof_.load.block->value(), segments * kPageSize);
  }
  // Requests that can be between two counters while a sample is taken.
  [[nodiscard]] std::uint64_t requests_between() const {
    const auto slots = blkif::ring_slots(1U << agreement_.ring_page_order, blkif::kNativeAbi);
    return std::uint64_t{agreement_.queues} * slots;
  }
  [[nodiscard]] std::uint64_t pools() const {
    return agreement_.back.pools == blkif::Pools::per_queue ? agreement_.queues : 1;
  }

 private:
  const Agreement& agreement_;
  const CounterProof& proof_;
};

// Out of mapping capacity pages are copied on every path: then copies prove nothing.
void check_no_copies(Checklist& list, const Window& window) {
  if (window.back(Counter::map_errors) == 0) list.none("grant copies", window.back(Counter::copies));
}

void check_hybrid(Checklist& list, const Agreement& agreement, const Window& window) {
  const std::uint64_t copies = window.back(Counter::copies);
  const std::uint64_t maps = window.back(Counter::maps);
  const auto largest = window.largest_request();
  if (!largest) {
    list.some("grant copies and maps", copies + maps);
  } else if (*largest <= agreement.back.hybrid_threshold) {
    list.some("grant copies of requests within the threshold", copies);
    list.none("grant maps of requests within the threshold", maps);
  } else {
    list.some("grant maps of requests beyond the threshold", maps);
  }
}

void check_data_path(Checklist& list, const Agreement& agreement, const Window& window) {
  if (agreement.persistent) {
    list.some("persistent hits", window.back(Counter::persistent_hits));
    // Above the cap the backend maps per request by design, and purged grants are unmapped: then unmaps prove nothing.
    const bool within_cap =
        window.back(Counter::persistent_overflows) == 0 && window.back(Counter::persistent_purged) == 0;
    if (within_cap) list.none("unmaps when warm", window.back(Counter::unmaps));
    return check_no_copies(list, window);
  }
  list.none("persistent hits", window.back(Counter::persistent_hits));
  switch (agreement.back.data_path) {
    case DataPath::map:
      list.some("grant maps", window.back(Counter::maps));
      return check_no_copies(list, window);
    case DataPath::copy:
      list.some("grant copies", window.back(Counter::copies));
      return list.none("grant maps", window.back(Counter::maps));
    case DataPath::hybrid:
      return check_hybrid(list, agreement, window);
  }
}

void check_unmaps(Checklist& list, const Agreement& agreement, const Window& window) {
  const std::uint64_t unmaps = window.back(Counter::unmaps);
  const std::uint64_t calls = window.back(Counter::unmap_calls);
  const std::uint64_t requests = window.back(Counter::requests_read) + window.back(Counter::requests_write);
  if (agreement.persistent || unmaps == 0 || window.back(Counter::map_errors) > 0) return;
  const std::uint64_t batch = agreement.back.unmap_batch;
  if (batch == 1) {
    if (agreement.back.data_path != DataPath::map) return;
    const std::uint64_t between = window.requests_between();
    return list.at_least("unmap calls, one for each request", requests > between ? requests - between : 0, calls);
  }
  list.at_most("unmaps of so many calls", (calls + agreement.queues) * batch, unmaps);
  // Two pages that are released in one round leave by one call: those of one request, or of requests that a store which
  // answers at once finishes together.
  const bool together =
      unmaps >= 2 * requests || (!window.load().store_answers_late && requests >= 2 * window.back(Counter::batches));
  if (together) list.that("unmap calls", "fewer than unmaps", fmt::format("{} for {}", calls, unmaps), calls < unmaps);
}

// The cache of persistent grants: its size, its structure, what it gives up.
void check_cache(Checklist& list, const Agreement& agreement, const Window& window) {
  if (!agreement.persistent) return;
  const blkif::BackPolicy& policy = agreement.back;
  const std::uint64_t hits = window.back(Counter::persistent_hits);
  const std::uint64_t purged = window.back(Counter::persistent_purged);
  std::uint64_t cached = 0;
  for (std::size_t q = 0; q < window.back_now().queues.size(); ++q) {
    const std::uint64_t own = window.back_now().queues[q].get(Gauge::persistent_cached);
    cached += own;
    // A pool of the device is reported by its first queue.
    if (policy.pools == blkif::Pools::per_device) {
      if (q > 0) list.none(fmt::format("grants in a pool of queue {}", q), own);
    } else if (purged == 0 && window.back_of_queue(q, Counter::persistent_hits) > 0) {
      list.some(fmt::format("grants in the pool of queue {}", q), own);
    }
  }
  list.at_most("persistent grants", policy.max_persistent_grants * window.pools(), cached);
  if (policy.persistent_purge == blkif::Purge::off && policy.persistent_unused_ms == 0) {
    list.none("persistent grants given up", purged);
  }
  // A lookup that misses is followed by one more when the grant is kept. A red-black tree of n entries is at most
  // 2 log2(n + 1) high, and one comparison says whether the entry at its foot is the one. A list has no such bound.
  if (policy.persistent_lookup == blkif::Lookup::list) return;
  const std::uint64_t misses = window.back(Counter::persistent_misses) + window.back(Counter::persistent_overflows) +
                               window.back(Counter::map_errors);
  const std::uint64_t height = 2 * std::bit_width(std::uint64_t{policy.max_persistent_grants} + 1) + 1;
  const std::uint64_t steps_each = policy.persistent_lookup == blkif::Lookup::array ? 1 : height;
  const std::uint64_t between = std::uint64_t{agreement.queues} * blkif::kIndirectSegmentsMax;  // one request a ring
  list.at_most("steps of lookups", (hits + 2 * misses + between) * steps_each,
               window.back(Counter::persistent_lookup_steps));
}

// What a policy that is off forbids to happen even once.
void check_what_is_off(Checklist& list, const Agreement& agreement, const Window& window) {
  const blkif::FrontPolicy& front = agreement.front;
  const blkif::BackPolicy& back = agreement.back;
  if (front.polling == blkif::Polling::event) list.none("polls of the frontend", window.front(Counter::polls));
  if (back.polling == blkif::Polling::event) list.none("polls of the backend", window.back(Counter::polls));
  if (front.event_holdoff == 1) list.none("events held off by the frontend", window.front(Counter::events_held_off));
  if (back.event_holdoff == 1) list.none("events held off by the backend", window.back(Counter::events_held_off));
  if (back.final_check == blkif::FinalCheck::dispatch) {
    list.none("requests deferred", window.back(Counter::requests_deferred));
  }
  // A pool of one queue has no lock.
  if (front.pools == blkif::Pools::per_queue) {
    list.none("waits for a pool of the frontend", window.front(Counter::pool_lock_contended));
  }
  if (back.pools == blkif::Pools::per_queue) {
    list.none("waits for a pool of the backend", window.back(Counter::pool_lock_contended));
  }
  if (back.ordering == blkif::Ordering::none) list.none("flushes", window.back(Counter::requests_flush));
  if (back.ordering == blkif::Ordering::none || back.ordering == blkif::Ordering::flush) {
    list.none("barriers", window.back(Counter::barrier_drains));
  }
  if (back.discard == blkif::Discard::off) list.none("discards", window.back(Counter::requests_discard));
}

// Through pages of the pool when they stay granted, or when no byte of a caller's page but the request's own may be.
void check_front_copies(Checklist& list, const Agreement& agreement, const Window& window) {
  const std::uint64_t copied = window.front(Counter::copied_bytes);
  if (agreement.persistent || !agreement.front.trusted) return list.some("bytes copied by the frontend", copied);
  list.none("bytes copied by the frontend", copied);
}

void check_indirect(Checklist& list, const Agreement& agreement, const Window& window) {
  const std::uint64_t indirect = window.front(Counter::requests_indirect);
  if (agreement.indirect_segments == 0) return list.none("indirect requests", indirect);
  const auto largest = window.largest_request();
  if (largest && *largest > blkif::kDirectSegmentsMax * kPageSize) list.some("indirect requests", indirect);
}

void check_free_pages(Checklist& list, const Agreement& agreement, const Window& window) {
  list.at_most("free pages kept", agreement.back.max_free_pages * window.pools(),
               window.back_now().total(Gauge::free_pages));
}

void check_queues(Checklist& list, const Agreement& agreement, const CounterProof& proof) {
  const auto& begin = proof.front_begin.queues;
  const auto& end = proof.front_end.queues;
  list.equal("queues counted", std::to_string(agreement.queues), std::to_string(end.size()));
  std::uint64_t busy = 0;
  for (std::size_t q = 0; q < std::min(begin.size(), end.size()); ++q) {
    busy += end[q].get(Counter::requests) > begin[q].get(Counter::requests) ? 1 : 0;
  }
  list.at_least("queues with requests", std::min(agreement.queues, proof.load.submitters), busy);
}

}  // namespace

Verification verify_counters(const Agreement& agreement, const CounterProof& proof) {
  Checklist list;
  const bool same_connection = proof.front_begin.generation == proof.front_end.generation &&
                               proof.back_begin.generation == proof.back_end.generation;
  list.equal("one connection", "yes", same_connection ? "yes" : "no");
  if (!same_connection) return list.take();
  const Window window(agreement, proof);
  check_data_path(list, agreement, window);
  check_unmaps(list, agreement, window);
  check_cache(list, agreement, window);
  check_what_is_off(list, agreement, window);
  check_front_copies(list, agreement, window);
  check_indirect(list, agreement, window);
  check_free_pages(list, agreement, window);
  check_queues(list, agreement, proof);
  return list.take();
}

}  // namespace xblk::toggle
