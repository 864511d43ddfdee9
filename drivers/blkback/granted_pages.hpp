// How one request reaches the frontend's pages: the three data paths of the field behind one pair of verbs.
//
//   persistent   mapped once, kept until disconnect, found again by gref (seed 003)
//   map          mapped for the request, unmapped with its completion: one unmap batch per request
//   copy         no mapping: the hypervisor copies between the granted pages and pages of our own
//
// Out of mapping capacity (vm.max_map_count, maptrack; XSA-300) the first two do not fail: the pages that cannot be
// mapped are copied for this request, as above the persistent cap they are mapped for this request only.
//
// acquire() makes every segment addressable or nothing (a bad gref in the middle of a batch leaks nothing: XSA-361,
// -365, -371); release() gives everything back, after writing copied data to the frontend when the request was a read.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "drivers/base/counters.hpp"
#include "drivers/blkback/page_options.hpp"
#include "drivers/blkback/pools.hpp"
#include "drivers/blkif/request.hpp"
#include "drivers/platform/concepts.hpp"
#include "drivers/platform/untrusted.hpp"
#include "drivers/store/store.hpp"

namespace xblk::blkback {

// What one request holds of its frontend's pages; lives in the ring's preallocated request slots.
class HeldPages {
 public:
  [[nodiscard]] std::span<const store::Piece> pieces() const { return pieces_; }
  [[nodiscard]] bool empty() const { return pages_.empty(); }

 private:
  template <platform::Platform P>
  friend class GrantedPages;
  struct Page {
    enum class Kind : std::uint8_t { none, pinned, mapped, copied };
    Kind kind = Kind::none;
    GrantRef gref{};
    MapHandle handle{};
    std::byte* address = nullptr;  // of the page, not of the data in it
    std::uint16_t offset = 0;
    std::uint16_t bytes = 0;
  };
  std::vector<Page> pages_;
  std::vector<store::Piece> pieces_;
};

template <platform::Platform P>
class GrantedPages {
 public:
  struct Config {
    DomId frontend{};
    PageOptions options;
    bool reports_pools = true;  // of rings that share a per-device pool, the first one reports its size
  };

  GrantedPages(typename P::Back& hypervisor, Config config, Pools<typename P::Env>& pools, QueueCounters& counters)
      : hypervisor_(hypervisor),
        config_(config),
        persistent_(pools.persistent),
        free_pages_(pools.free_pages),
        counters_(counters) {}

  // `to_frontend`: the store will write into the pages (a read request). False: nothing is held, answer RSP_ERROR.
  [[nodiscard]] bool acquire(std::span<const blkif::Segment> segments, bool to_frontend, HeldPages& held) {
    describe(segments, held);
    const bool ok = config_.options.path == DataPath::copy ? copy_in(to_frontend, held) : map_pages(to_frontend, held);
    count_locks();
    if (!ok) {
      release(/*to_frontend=*/false, held);
      return false;
    }
    for (const auto& page : held.pages_) held.pieces_.push_back({page.address + page.offset, page.bytes});
    return true;
  }

  // False when the data of a read could not be copied to the frontend (it took the grant back meanwhile).
  bool release(bool to_frontend, HeldPages& held) {
    const bool ok = !to_frontend || copy(platform::CopyOp::Direction::to_grant, held);
    for (auto& page : held.pages_) {
      switch (page.kind) {
        case Kind::none:
          break;
        case Kind::pinned:
          persistent_.unpin(page.gref, pool_wait_);
          break;
        case Kind::mapped:
          unmaps_.push_back({page.handle, page.address});
          --mappings_;
          break;
        case Kind::copied:
          free_pages_.give_back(page.address, pool_wait_);
          break;
      }
    }
    held.pages_.clear();
    held.pieces_.clear();
    if (config_.options.unmap_batch == 1) flush_unmaps();
    while (unmaps_.size() >= config_.options.unmap_batch && !unmaps_.empty()) unmap_first(config_.options.unmap_batch);
    count_locks();
    return ok;
  }

  // Unmaps what release() has put together. Before the response of a released request is published: its frontend ends
  // access to the pages then, and fails while they are mapped (XSA-396).
  void flush_unmaps() {
    if (!unmaps_.empty()) unmap_first(unmaps_.size());
    count_locks();
  }

  // At most one slice of slow work; true: more is due. When to call it without a reason of another kind.
  bool maintain(Instant /*now*/) { return false; }
  [[nodiscard]] Instant next_maintenance() const { return Instant::never(); }

  // The private copy of an indirect page: the frontend may rewrite the page at any time, so it is fetched exactly once.
  [[nodiscard]] bool fetch_page(GrantRef gref, std::array<std::byte, kPageSize>& copy) {
    constexpr blkif::Segment whole{GrantRef(0), 0, kSectorsPerPage - 1};
    blkif::Segment segment = whole;
    segment.gref = gref;
    if (!acquire({&segment, 1}, /*to_frontend=*/false, indirect_)) return false;
    copy = platform::Untrusted<std::array<std::byte, kPageSize>>(indirect_.pieces()[0].address).fetch();
    return release(/*to_frontend=*/false, indirect_);
  }

  // At disconnect, when no ring that shares the pools has a request: every cached grant is unmapped, every page freed.
  void drop_pools() {
    for (const auto& grant : persistent_.take_all()) unmaps_.push_back({grant.handle, grant.address});
    flush_unmaps();
    free_pages_.drop();
    count_locks();
    publish_gauges();
  }

  void publish_gauges() {
    counters_.set(Gauge::mappings_in_use, mappings_);
    if (!config_.reports_pools) return;
    counters_.set(Gauge::persistent_cached, persistent_.size(pool_wait_));
    counters_.set(Gauge::free_pages, free_pages_.size(pool_wait_));
  }

 private:
  using Kind = HeldPages::Page::Kind;

  static void describe(std::span<const blkif::Segment> segments, HeldPages& held) {
    for (const auto& segment : segments) {
      HeldPages::Page page;
      page.gref = segment.gref;
      page.offset = static_cast<std::uint16_t>(segment.first_sector * kSectorSize);
      page.bytes = static_cast<std::uint16_t>((segment.last_sector - segment.first_sector + 1) * kSectorSize);
      held.pages_.push_back(page);
    }
  }

  [[nodiscard]] bool map_pages(bool to_frontend, HeldPages& held) {
    maps_.clear();
    missing_.clear();
    for (auto& page : held.pages_) {
      if (config_.options.path == DataPath::persistent && pin_cached(page)) continue;
      // A persistent mapping serves both directions later; otherwise a write request only needs to read the page.
      const bool read_only = config_.options.path == DataPath::map && !to_frontend;
      maps_.push_back({page.gref, read_only ? platform::Access::read_only : platform::Access::read_write});
      missing_.push_back(&page);
    }
    if (maps_.empty()) return true;
    hypervisor_.map(config_.frontend, maps_, grant_wait_);
    counters_.add(Counter::map_calls);
    bool ok = true;
    bool copied = false;
    // Every operation is looked at, also after a failed one: the good ones must be given back.
    for (std::size_t i = 0; i < maps_.size(); ++i) {
      ok = take_mapping(maps_[i], *missing_[i]) && ok;
      copied |= missing_[i]->kind == Kind::copied;
    }
    if (ok && copied && !to_frontend) return copy(platform::CopyOp::Direction::from_grant, held);
    return ok;
  }

  [[nodiscard]] bool pin_cached(HeldPages::Page& page) {
    PersistentGrant grant;
    if (persistent_.pin(page.gref, grant, pool_wait_) != PersistentPool<typename P::Env>::Lookup::hit) return false;
    page.kind = Kind::pinned;
    page.address = grant.address;
    counters_.add(Counter::persistent_hits);
    return true;
  }

  [[nodiscard]] bool take_mapping(const platform::MapOp& op, HeldPages::Page& page) {
    if (op.status != platform::GrantStatus::okay) {
      counters_.add(Counter::map_errors);
      if (op.status != platform::GrantStatus::no_device_space) return false;
      page.address = free_pages_.take(pool_wait_);
      page.kind = Kind::copied;
      return true;
    }
    counters_.add(Counter::maps);
    ++mappings_;
    page.address = op.address;
    page.handle = op.handle;
    page.kind = Kind::mapped;
    if (config_.options.path != DataPath::persistent) return true;
    if (persistent_.insert_pinned(page.gref, {op.handle, op.address}, pool_wait_)) {
      page.kind = Kind::pinned;
      --mappings_;  // the pool's now
      counters_.add(Counter::persistent_misses);
    } else {
      counters_.add(Counter::persistent_overflows);
    }
    return true;
  }

  [[nodiscard]] bool copy_in(bool to_frontend, HeldPages& held) {
    for (auto& page : held.pages_) {
      page.address = free_pages_.take(pool_wait_);
      page.kind = Kind::copied;
    }
    return to_frontend || copy(platform::CopyOp::Direction::from_grant, held);
  }

  // Of the pages that are held as copies; none is no error.
  [[nodiscard]] bool copy(platform::CopyOp::Direction direction, const HeldPages& held) {
    copies_.clear();
    for (const auto& page : held.pages_) {
      if (page.kind != Kind::copied) continue;
      copies_.push_back({direction, page.gref, page.offset, page.bytes, page.address + page.offset});
    }
    if (copies_.empty()) return true;
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

  void unmap_first(std::size_t count) {
    const std::span<platform::UnmapOp> ops = std::span(unmaps_).first(count);
    hypervisor_.unmap(ops, grant_wait_);
    counters_.add(Counter::unmap_calls);
    counters_.add(Counter::unmaps, ops.size());
    for (const auto& op : ops) XBLK_CHECK(op.status == platform::GrantStatus::okay, "we unmap only what we mapped");
    unmaps_.erase(unmaps_.begin(), unmaps_.begin() + static_cast<std::ptrdiff_t>(count));
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

  typename P::Back& hypervisor_;
  Config config_;
  PersistentPool<typename P::Env>& persistent_;
  FreePages<typename P::Env>& free_pages_;
  QueueCounters& counters_;
  platform::LockWait pool_wait_;
  platform::LockWait grant_wait_;
  std::uint64_t mappings_ = 0;  // held for requests in flight; the persistent ones are counted by their pool
  HeldPages indirect_;
  // Scratch of one batch, kept so that the I/O path allocates nothing once warm.
  std::vector<platform::MapOp> maps_;
  std::vector<HeldPages::Page*> missing_;
  std::vector<platform::UnmapOp> unmaps_;  // released, not yet unmapped
  std::vector<platform::CopyOp> copies_;
};

}  // namespace xblk::blkback
