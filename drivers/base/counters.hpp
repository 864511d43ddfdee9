// Every mechanism counts itself, per queue. One list serves both ends, the statistics file, the engine's snapshots
// and the agent: a counter that does not apply to an end stays 0 there.
//
// Each counter has one writer (the ring's own worker, or the holder of the ring's lock), so an increment is a relaxed
// load and a relaxed store, not a locked instruction; readers in other processes see a recent value, never a torn one.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace xblk {

// X(name, help). Append only: the position is the layout of the statistics file (statistics_file.hpp).
#define XBLK_COUNTERS(X)                                                                                  \
  X(ios, "I/Os accepted from (front) the caller; one I/O may be several ring requests")                   \
  X(requests, "ring requests sent (front) or consumed (back)")                                            \
  X(requests_read, "of these: reads")                                                                     \
  X(requests_write, "of these: writes")                                                                   \
  X(requests_flush, "of these: flushes and barriers")                                                     \
  X(requests_discard, "of these: discards")                                                               \
  X(requests_indirect, "of these: sent as indirect requests")                                             \
  X(segments, "segments in those requests")                                                               \
  X(read_bytes, "bytes read by completed requests")                                                       \
  X(write_bytes, "bytes written by completed requests")                                                   \
  X(responses_ok, "responses with BLKIF_RSP_OKAY")                                                        \
  X(responses_error, "responses with BLKIF_RSP_ERROR or EOPNOTSUPP")                                      \
  X(requests_malformed, "requests refused by validation")                                                 \
  X(maps, "grant map operations that succeeded")                                                          \
  X(map_calls, "batches in which they were issued (one hypercall each on Xen)")                           \
  X(map_errors, "grant map operations that failed")                                                       \
  X(unmaps, "grant unmap operations")                                                                     \
  X(unmap_calls, "batches in which they were issued")                                                     \
  X(copies, "grant copy operations that succeeded")                                                       \
  X(copy_calls, "batches in which they were issued")                                                      \
  X(copy_errors, "grant copy operations that failed")                                                     \
  X(copied_bytes, "bytes moved by grant copies (back) or by bounce copies into granted pages (front)")    \
  X(persistent_hits, "segments served from the persistent-grant cache")                                   \
  X(persistent_misses, "segments mapped and then kept in the cache")                                      \
  X(persistent_overflows, "segments mapped non-persistently because the cache was at its cap")            \
  X(persistent_purged, "cached mappings given up before disconnect")                                      \
  X(grants_issued, "grant entries filled in (front)")                                                     \
  X(grants_ended, "grant entries cleared (front)")                                                        \
  X(notifications_sent, "event-channel notifications sent")                                               \
  X(notifications_suppressed, "ring pushes that needed no notification (req_event/rsp_event)")            \
  X(events_received, "event-channel wake-ups taken")                                                      \
  X(events_spurious, "wake-ups that found nothing to do")                                                 \
  X(ring_full_stalls, "submissions that waited for a free ring slot or grant")                            \
  X(batches, "dispatch rounds that consumed at least one request (back), pushes (front)")                 \
  X(polls, "polling rounds without an event")                                                             \
  X(pool_lock_wait_ns, "time spent waiting for persistent-grant and free-page pool locks")                \
  X(pool_lock_contended, "acquisitions of pool locks that had to wait")                                   \
  X(grant_lock_wait_ns, "time spent waiting for grant-table and maptrack locks")                          \
  X(grant_lock_contended, "acquisitions of grant-table locks that had to wait")                           \
  X(worker_cpu_ns, "CPU time of the worker, shared out over the rings it served by requests")             \
  X(store_errors, "operations that the backing store failed")                                             \
  X(persistent_lookup_steps, "entries of the persistent-grant cache looked at to find grants")            \
  X(requests_deferred, "rounds that left requests waiting behind those in flight (final-check=response)") \
  X(events_held_off, "times that one event was asked for several items (event-holdoff)")                  \
  X(holdoff_timeouts, "of these: ended by the time limit")                                                \
  X(barrier_drains, "barriers for which all rings of the device were drained (back)")                     \
  X(ring_lock_wait_ns, "time spent waiting for the lock of a ring that several channels share (front)")   \
  X(ring_lock_contended, "acquisitions of a ring's lock that had to wait (front)")                        \
  X(map_capacity_errors, "of map_errors: no mapping capacity was left, so the page was copied instead")

enum class Counter : std::size_t {
#define XBLK_COUNTER_ENUM(name, help) name,
  XBLK_COUNTERS(XBLK_COUNTER_ENUM)
#undef XBLK_COUNTER_ENUM
      kCount
};
inline constexpr std::size_t kCounterCount = static_cast<std::size_t>(Counter::kCount);

inline constexpr std::array<std::string_view, kCounterCount> kCounterNames = {
#define XBLK_COUNTER_NAME(name, help) #name,
    XBLK_COUNTERS(XBLK_COUNTER_NAME)
#undef XBLK_COUNTER_NAME
};
inline constexpr std::array<std::string_view, kCounterCount> kCounterHelp = {
#define XBLK_COUNTER_HELP(name, help) help,
    XBLK_COUNTERS(XBLK_COUNTER_HELP)
#undef XBLK_COUNTER_HELP
};

// Values that go up and down; disconnect must leave all of them at zero (leak test).
#define XBLK_GAUGES(X)                                               \
  X(grants_in_use, "grant entries currently granted (front)")        \
  X(mappings_in_use, "grant mappings currently held (back)")         \
  X(persistent_cached, "mappings or grants in the persistent cache") \
  X(free_pages, "pages in the free-page pool")                       \
  X(requests_in_flight, "ring requests without a response")

enum class Gauge : std::size_t {
#define XBLK_GAUGE_ENUM(name, help) name,
  XBLK_GAUGES(XBLK_GAUGE_ENUM)
#undef XBLK_GAUGE_ENUM
      kCount
};
inline constexpr std::size_t kGaugeCount = static_cast<std::size_t>(Gauge::kCount);
inline constexpr std::array<std::string_view, kGaugeCount> kGaugeNames = {
#define XBLK_GAUGE_NAME(name, help) #name,
    XBLK_GAUGES(XBLK_GAUGE_NAME)
#undef XBLK_GAUGE_NAME
};

// One queue's live counters. Lives in the statistics file's shared mapping, or in plain memory in tests.
struct alignas(64) QueueCounters {
  std::array<std::atomic<std::uint64_t>, kCounterCount> counters{};
  std::array<std::atomic<std::uint64_t>, kGaugeCount> gauges{};

  void add(Counter c, std::uint64_t n = 1) {
    auto& cell = counters[static_cast<std::size_t>(c)];
    cell.store(cell.load(std::memory_order_relaxed) + n, std::memory_order_relaxed);
  }
  void set(Gauge g, std::uint64_t value) {
    gauges[static_cast<std::size_t>(g)].store(value, std::memory_order_relaxed);
  }
  [[nodiscard]] std::uint64_t get(Counter c) const {
    return counters[static_cast<std::size_t>(c)].load(std::memory_order_relaxed);
  }
  [[nodiscard]] std::uint64_t get(Gauge g) const {
    return gauges[static_cast<std::size_t>(g)].load(std::memory_order_relaxed);
  }
};
static_assert(std::atomic<std::uint64_t>::is_always_lock_free, "counters are shared between processes");

// A plain copy, for arithmetic.
struct QueueSample {
  std::array<std::uint64_t, kCounterCount> counters{};
  std::array<std::uint64_t, kGaugeCount> gauges{};

  [[nodiscard]] std::uint64_t get(Counter c) const { return counters[static_cast<std::size_t>(c)]; }
  [[nodiscard]] std::uint64_t get(Gauge g) const { return gauges[static_cast<std::size_t>(g)]; }
};

inline QueueSample sample(const QueueCounters& live) {
  QueueSample s;
  for (std::size_t i = 0; i < kCounterCount; ++i) s.counters[i] = live.counters[i].load(std::memory_order_relaxed);
  for (std::size_t i = 0; i < kGaugeCount; ++i) s.gauges[i] = live.gauges[i].load(std::memory_order_relaxed);
  return s;
}

}  // namespace xblk
