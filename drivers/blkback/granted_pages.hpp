// How one request reaches the frontend's pages: the data paths of the field behind one pair of verbs.
//
//   persistent   mapped once, kept until it is given up or disconnected, found again by gref (seed 003)
//   map          mapped for the request, unmapped after it: in batches, or one batch per request
//   copy         no mapping: the hypervisor copies between the granted pages and pages of our own
//   hybrid       copy for small requests, map for large ones
//
// Out of mapping capacity (vm.max_map_count, maptrack; XSA-300) a page that cannot be mapped is copied for its request.
//
// acquire() makes every segment addressable or nothing (a bad gref in the middle of a batch leaks nothing: XSA-361,
// -365, -371); release() gives everything back, after writing copied data to the frontend when the request was a read.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <new>
#include <optional>
#include <span>
#include <vector>

#include "drivers/base/check.hpp"
#include "drivers/base/counters.hpp"
#include "drivers/blkback/held_pages.hpp"
#include "drivers/blkback/page_options.hpp"
#include "drivers/blkback/pools.hpp"
#include "drivers/blkif/request.hpp"
#include "drivers/platform/concepts.hpp"
#include "drivers/platform/untrusted.hpp"

namespace xblk::blkback {

// Of one ring. One thread at a time; the pools may be shared with other rings.
template <platform::Platform P>
class GrantedPages {
 public:
  struct Config {
    DomId frontend{};
    PageOptions options;
    bool reports_pools = true;  // of rings that share a per-device pool, the first one reports its size
  };

  GrantedPages(typename P::Back& hypervisor, Config config, Pools<typename P::Env>& pools, QueueCounters& counters)
      : hypervisor_(hypervisor), config_(config), pools_(pools), counters_(counters) {
    missing_.reserve(blkif::kIndirectSegmentsMax);
    maps_.reserve(blkif::kIndirectSegmentsMax);
    copies_.reserve(blkif::kIndirectSegmentsMax);
    unmaps_.reserve(blkif::kIndirectSegmentsMax + config.options.unmap_batch);
  }

  // `to_frontend`: the store will write into the pages (a read request). False: nothing is held, answer RSP_ERROR.
  [[nodiscard]] bool acquire(std::span<const blkif::Segment> segments, bool to_frontend, HeldPages& held) {
    const bool ok = describe(segments, held) && hold(segments, to_frontend, held);
    count_locks();
    if (!ok) release(/*to_frontend=*/false, held);
    return ok;
  }

  // False when the data of a read could not be copied to the frontend (it took the grant back meanwhile). Pages that
  // were mapped for the request stay so until flush_unmaps() at the latest.
  bool release(bool to_frontend, HeldPages& held) {
    const bool ok = !to_frontend || copy(platform::CopyOp::Direction::to_grant, held);
    for (std::size_t i = 0; i < held.holds_.size(); ++i) give_back(held.holds_[i], held.pieces_[i]);
    held.holds_.clear();
    held.pieces_.clear();
    held.any_copied_ = false;
    const std::size_t batch = config_.options.unmap_batch;
    if (batch == 1 && !unmaps_.empty()) unmap_queued(unmaps_.size());
    while (unmaps_.size() >= batch) unmap_queued(batch);
    count_locks();
    return ok;
  }

  // Ends a dispatch round: unmaps what release() has queued. Before the response of a released request is published,
  // as its frontend ends access to the pages then, and fails while they are mapped (XSA-396).
  void flush_unmaps() {
    released_at_.reset();
    if (!unmaps_.empty()) unmap_queued(unmaps_.size());
    count_locks();
  }

  // The private copy of an indirect page: the frontend may rewrite the page at any time, so it is fetched exactly once.
  [[nodiscard]] bool fetch_page(GrantRef gref, std::array<std::byte, kPageSize>& copy) {
    const blkif::Segment whole{gref, 0, kSectorsPerPage - 1};
    if (!acquire({&whole, 1}, /*to_frontend=*/false, indirect_)) return false;
    copy = platform::Untrusted<std::array<std::byte, kPageSize>>(indirect_.pieces()[0].address).fetch();
    return release(/*to_frontend=*/false, indirect_);
  }

  // One slice of giving up persistent grants that are due; true: more are. Besides the I/O, by any ring of the pool.
  bool maintain(Instant now) {
    std::array<platform::UnmapOp, kPurgeSlice> due;
    const std::size_t n = pools_.persistent.take_due(now, due, pool_wait_);
    if (n > 0) {
      unmap(std::span(due).first(n));
      counters_.add(Counter::persistent_purged, n);
      publish_gauges();
    }
    count_locks();
    return n == due.size() && next_maintenance() <= now;
  }
  // When maintain() will have something to do, should nothing be used until then.
  [[nodiscard]] Instant next_maintenance() { return pools_.persistent.next_due(pool_wait_); }

  // At disconnect, when no ring that shares the pools has a request: every cached grant is unmapped, every page freed.
  void drop_pools() {
    flush_unmaps();
    auto cached = pools_.persistent.take_all();
    if (!cached.empty()) unmap(cached);
    pools_.free_pages.drop();
    count_locks();
    publish_gauges();
  }

  void publish_gauges() {
    counters_.set(Gauge::mappings_in_use, mappings_);
    if (!config_.reports_pools) return;
    counters_.set(Gauge::persistent_cached, pools_.persistent.size(pool_wait_));
    counters_.set(Gauge::free_pages, pools_.free_pages.size(pool_wait_));
  }

 private:
  using Hold = HeldPages::Hold;
  using Kind = Hold::Kind;

  // ---- acquire ----

  [[nodiscard]] bool hold(std::span<const blkif::Segment> segments, bool to_frontend, HeldPages& held) {
    if (takes_copies(segments)) {
      bool ok = true;
      for (std::size_t i = 0; i < segments.size() && ok; ++i) ok = hold_copy(i, segments[i], held);
      return ok && (to_frontend || copy(platform::CopyOp::Direction::from_grant, held));
    }
    missing_.clear();
    if (config_.options.path == DataPath::persistent) {
      pin_cached(segments, held);
    } else {
      for (std::size_t i = 0; i < segments.size(); ++i) missing_.push_back(i);
    }
    return missing_.empty() || map_missing(segments, to_frontend, held);
  }

  // False: out of memory.
  [[nodiscard]] static bool describe(std::span<const blkif::Segment> segments, HeldPages& held) {
    try {
      held.pieces_.reserve(segments.size());
      held.holds_.reserve(segments.size());
    } catch (const std::bad_alloc&) {
      return false;
    }
    for (const auto& segment : segments) {
      held.holds_.push_back({.gref = segment.gref});
      held.pieces_.push_back({nullptr, bytes(segment)});
    }
    return true;
  }

  [[nodiscard]] bool takes_copies(std::span<const blkif::Segment> segments) const {
    if (config_.options.path != DataPath::hybrid) return config_.options.path == DataPath::copy;
    return to_bytes(blkif::transfer_length(segments)) <= config_.options.hybrid_threshold;
  }

  void pin_cached(std::span<const blkif::Segment> segments, HeldPages& held) {
    std::uint64_t steps = 0;
    for (std::size_t i = 0; i < segments.size(); ++i) {
      PersistentGrant* grant = pools_.persistent.pin(segments[i].gref, steps, pool_wait_);
      if (grant == nullptr) {
        missing_.push_back(i);
        continue;
      }
      held.holds_[i].kind = Kind::pinned;
      held.holds_[i].grant = grant;
      held.pieces_[i].address = grant->address + offset(segments[i]);
    }
    counters_.add(Counter::persistent_lookup_steps, steps);
    counters_.add(Counter::persistent_hits, segments.size() - missing_.size());
  }

  [[nodiscard]] bool map_missing(std::span<const blkif::Segment> segments, bool to_frontend, HeldPages& held) {
    // A persistent mapping serves both directions later; otherwise a write request only needs to read the page.
    const bool read_only = config_.options.path != DataPath::persistent && !to_frontend;
    maps_.clear();
    for (const std::size_t i : missing_) {
      maps_.push_back({segments[i].gref, read_only ? platform::Access::read_only : platform::Access::read_write});
    }
    hypervisor_.map(config_.frontend, maps_, grant_wait_);
    counters_.add(Counter::map_calls);
    // Every operation is looked at, also after a failed one: the good ones must be given back.
    bool ok = true;
    for (std::size_t n = 0; n < maps_.size(); ++n) {
      const std::size_t i = missing_[n];
      ok = take_mapping(maps_[n], i, segments[i], held) && ok;
    }
    if (ok && held.any_copied_ && !to_frontend) return copy(platform::CopyOp::Direction::from_grant, held);
    return ok;
  }

  [[nodiscard]] bool take_mapping(const platform::MapOp& op, std::size_t i, const blkif::Segment& segment,
                                  HeldPages& held) {
    if (op.status != platform::GrantStatus::okay) {
      counters_.add(Counter::map_errors);
      if (op.status != platform::GrantStatus::no_device_space) return false;
      counters_.add(Counter::map_capacity_errors);
      return hold_copy(i, segment, held);
    }
    counters_.add(Counter::maps);
    Hold& hold = held.holds_[i];
    held.pieces_[i].address = op.address + offset(segment);
    if (config_.options.path == DataPath::persistent) {
      std::uint64_t steps = 0;
      hold.grant = pools_.persistent.insert_pinned(segment.gref, op.handle, op.address, steps, pool_wait_);
      counters_.add(Counter::persistent_lookup_steps, steps);
      counters_.add(hold.grant != nullptr ? Counter::persistent_misses : Counter::persistent_overflows);
    }
    hold.kind = hold.grant != nullptr ? Kind::pinned : Kind::mapped;
    hold.handle = op.handle;
    if (hold.kind == Kind::mapped) ++mappings_;
    return true;
  }

  // False: out of memory.
  [[nodiscard]] bool hold_copy(std::size_t i, const blkif::Segment& segment, HeldPages& held) {
    std::byte* page = pools_.free_pages.take(pool_wait_);
    if (page == nullptr) return false;
    held.pieces_[i].address = page + offset(segment);
    held.holds_[i].kind = Kind::copied;
    held.any_copied_ = true;
    return true;
  }

  // ---- both ways ----

  // Of the pieces that are held as copies; none is no error.
  [[nodiscard]] bool copy(platform::CopyOp::Direction direction, const HeldPages& held) {
    if (!held.any_copied_) return true;
    copies_.clear();
    for (std::size_t i = 0; i < held.holds_.size(); ++i) {
      if (held.holds_[i].kind != Kind::copied) continue;
      const store::Piece& piece = held.pieces_[i];
      const auto in_page = static_cast<std::uint16_t>(piece.address - page_of(piece));
      copies_.push_back(
          {direction, held.holds_[i].gref, in_page, static_cast<std::uint16_t>(piece.bytes), piece.address});
    }
    hypervisor_.copy(config_.frontend, copies_, grant_wait_);
    counters_.add(Counter::copy_calls);
    bool ok = true;
    for (const auto& op : copies_) {
      if (op.status == platform::GrantStatus::okay) {
        counters_.add(Counter::copies);
        counters_.add(Counter::copied_bytes, op.length);
      } else {
        counters_.add(Counter::copy_errors);
        ok = false;
      }
    }
    return ok;
  }

  // ---- release ----

  void give_back(const Hold& hold, const store::Piece& piece) {
    switch (hold.kind) {
      case Kind::none:
        break;
      case Kind::pinned:
        if (!released_at_) released_at_ = pools_.env.now();  // one look at the clock per dispatch round
        pools_.persistent.unpin(*hold.grant, *released_at_, pool_wait_);
        break;
      case Kind::mapped:
        unmaps_.push_back({hold.handle, page_of(piece)});
        break;
      case Kind::copied:
        pools_.free_pages.give_back(page_of(piece), pool_wait_);
        break;
    }
  }

  void unmap_queued(std::size_t count) {
    unmap(std::span(unmaps_).first(count));
    mappings_ -= count;
    unmaps_.erase(unmaps_.begin(), unmaps_.begin() + static_cast<std::ptrdiff_t>(count));
  }

  void unmap(std::span<platform::UnmapOp> ops) {
    hypervisor_.unmap(ops, grant_wait_);
    counters_.add(Counter::unmap_calls);
    counters_.add(Counter::unmaps, ops.size());
    for (const auto& op : ops) XBLK_CHECK(op.status == platform::GrantStatus::okay, "we unmap only what we mapped");
  }

  void count_locks() {
    if (pool_wait_.contended != 0) {
      counters_.add(Counter::pool_lock_wait_ns, pool_wait_.wait_ns);
      counters_.add(Counter::pool_lock_contended, pool_wait_.contended);
      pool_wait_ = {};
    }
    if (grant_wait_.contended != 0) {
      counters_.add(Counter::grant_lock_wait_ns, grant_wait_.wait_ns);
      counters_.add(Counter::grant_lock_contended, grant_wait_.contended);
      grant_wait_ = {};
    }
  }

  static std::size_t offset(const blkif::Segment& segment) { return segment.first_sector * kSectorSize; }
  static std::uint32_t bytes(const blkif::Segment& segment) {
    return static_cast<std::uint32_t>((segment.last_sector - segment.first_sector + 1u) * kSectorSize);
  }
  static std::byte* page_of(const store::Piece& piece) {
    return piece.address - reinterpret_cast<std::uintptr_t>(piece.address) % kPageSize;
  }

  typename P::Back& hypervisor_;
  const Config config_;
  Pools<typename P::Env>& pools_;
  QueueCounters& counters_;
  platform::LockWait pool_wait_;
  platform::LockWait grant_wait_;
  std::uint64_t mappings_ = 0;  // held for requests in flight; the persistent ones are counted by their pool
  std::optional<Instant> released_at_;
  HeldPages indirect_;
  // Large enough from the start: giving pages back needs no memory.
  std::vector<platform::UnmapOp> unmaps_;  // released, not yet unmapped
  // Scratch of one request.
  std::vector<std::size_t> missing_;  // segments
  std::vector<platform::MapOp> maps_;
  std::vector<platform::CopyOp> copies_;
};

}  // namespace xblk::blkback
