// How the data of a request reach the backend. Three ways:
//
//   persistent                copied through pool pages that stay granted; the backend maps each once (seed 003)
//   not persistent            the caller's own pages, granted for the time of the request; nothing is copied
//   not persistent, untrusted copied through pool pages that are granted for the time of the request (XSA-403): of the
//                             caller's pages the backend would see what lies around the data, too
//
// Indirect pages come from a pool and stay granted in all three.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "drivers/base/check.hpp"
#include "drivers/base/counters.hpp"
#include "drivers/base/units.hpp"
#include "drivers/blkfront/grant_pool.hpp"
#include "drivers/blkif/request.hpp"
#include "drivers/platform/concepts.hpp"

namespace xblk::blkfront {

// Of the request being built.
struct SegmentList {
  std::array<blkif::Segment, blkif::kIndirectSegmentsMax> items;
  std::uint32_t count = 0;

  void add(GrantRef gref, std::uint64_t offset, std::uint64_t bytes) {
    items[count++] = {gref, static_cast<std::uint8_t>(offset / kSectorSize),
                      static_cast<std::uint8_t>((offset + bytes) / kSectorSize - 1)};
  }
  [[nodiscard]] std::span<const blkif::Segment> all() const { return std::span(items).first(count); }
};

template <class P>
class DataPath {
 public:
  using Pool = std::shared_ptr<GrantPool<P>>;

  DataPath(typename P::Front& hypervisor, QueueCounters& counters) : hypervisor_(hypervisor), counters_(counters) {}

  // `data`: null where the caller's own pages are granted.
  void attach(DomId backend, Pool data, Pool indirect) {
    backend_ = backend;
    data_ = std::move(data);
    indirect_ = std::move(indirect);
  }
  void detach() {
    data_.reset();
    indirect_.reset();
  }

  [[nodiscard]] bool copies() const { return data_ != nullptr; }
  // Whether another queue that holds pages or grants can be the reason for having none here, and will give them back.
  [[nodiscard]] bool shares() const { return !copies() || data_->shared() || data_ != indirect_; }
  [[nodiscard]] std::uint32_t pages_needed(const std::byte* buffer, std::uint64_t bytes) const {
    const std::uint64_t offset = copies() ? 0 : reinterpret_cast<std::uintptr_t>(buffer) % kPageSize;
    return static_cast<std::uint32_t>((offset + bytes + kPageSize - 1) / kPageSize);
  }

  // Makes up to `bytes` from `buffer` on reachable through `pages`, and lists them. `whole`: through all the pages or
  // none; else through as many as there are. Returns how many bytes.
  [[nodiscard]] std::uint64_t open(blkif::Op op, std::byte* buffer, std::uint64_t bytes, bool whole,
                                   std::span<GrantedPage> pages, SegmentList& segments) {
    return copies() ? copy_in(op, buffer, bytes, whole, pages, segments)
                    : grant_buffer(op, buffer, bytes, whole, pages, segments);
  }

  // Of a read that succeeded: the data go to the caller.
  void deliver(std::byte* buffer, std::uint64_t bytes, std::span<const GrantedPage> pages) {
    if (!copies()) return;
    counters_.add(Counter::copied_bytes, bytes);
    for (const auto& page : pages) {
      const std::uint64_t n = std::min<std::uint64_t>(kPageSize, bytes);
      std::memcpy(buffer, page.address, n);
      buffer += n;
      bytes -= n;
    }
  }

  // After the response. False when the backend still holds a page that was granted for this request (XSA-396).
  [[nodiscard]] bool close(std::span<GrantedPage> pages) {
    if (copies()) return give_back(*data_, pages);
    bool ended = true;
    for (const auto& page : pages) {
      if (hypervisor_.end_access(page.gref)) {
        count_ended(1);
      } else {
        abandoned_.push_back(page.gref);
        ended = false;
      }
    }
    return ended;
  }

  // Of a request that will get no response: the backend may still use its pages.
  void abandon(std::span<const GrantedPage> pages) {
    if (copies()) return data_->abandon(pages);
    for (const auto& page : pages) abandoned_.push_back(page.gref);
  }

  // A page for the segments of an indirect request.
  [[nodiscard]] bool open_indirect(GrantedPage& page) {
    PoolCosts costs;
    const std::uint32_t taken = indirect_->take({&page, 1}, 1, platform::Access::read_write, costs);
    count(costs);
    return taken == 1;
  }
  void close_indirect(GrantedPage& page) {
    const bool ended = give_back(*indirect_, {&page, 1});
    XBLK_CHECK(ended, "indirect pages stay granted");
  }
  void abandon_indirect(const GrantedPage& page) { indirect_->abandon({&page, 1}); }

  // Takes back what the backend held when it was given up. Returns how many it still holds.
  std::uint32_t end_abandoned() {
    std::erase_if(abandoned_, [this](GrantRef gref) {
      if (!hypervisor_.end_access(gref)) return false;
      count_ended(1);
      return true;
    });
    return static_cast<std::uint32_t>(abandoned_.size());
  }

  // For gauges: grants of callers' pages; those that a pool keeps, and those that a pool has given to requests.
  [[nodiscard]] std::uint32_t grants_held() const { return grants_held_; }
  [[nodiscard]] std::uint32_t kept_granted() const { return indirect_ == nullptr ? 0 : indirect_->granted(); }
  [[nodiscard]] std::uint32_t lent_by_pool() const {
    return data_ == nullptr || data_ == indirect_ ? 0 : data_->granted();
  }

 private:
  std::uint64_t copy_in(blkif::Op op, const std::byte* buffer, std::uint64_t bytes, bool whole,
                        std::span<GrantedPage> pages, SegmentList& segments) {
    const auto access = op == blkif::Op::read ? platform::Access::read_write : platform::Access::read_only;
    PoolCosts costs;
    const std::uint32_t taken = data_->take(pages, whole ? static_cast<std::uint32_t>(pages.size()) : 1, access, costs);
    count(costs);
    std::uint64_t done = 0;
    for (const auto& page : pages.first(taken)) {
      const std::uint64_t n = std::min<std::uint64_t>(kPageSize, bytes - done);
      if (op != blkif::Op::read) std::memcpy(page.address, buffer + done, n);
      segments.add(page.gref, 0, n);
      done += n;
    }
    if (op != blkif::Op::read) counters_.add(Counter::copied_bytes, done);
    return done;
  }

  std::uint64_t grant_buffer(blkif::Op op, const std::byte* buffer, std::uint64_t bytes, bool whole,
                             std::span<GrantedPage> pages, SegmentList& segments) {
    const auto access = op == blkif::Op::read ? platform::Access::read_write : platform::Access::read_only;
    std::uint64_t done = 0;
    for (auto& page : pages) {
      const std::size_t offset = reinterpret_cast<std::uintptr_t>(buffer + done) % kPageSize;
      const std::uint64_t n = std::min<std::uint64_t>(kPageSize - offset, bytes - done);
      const auto frame = hypervisor_.frame_of(buffer + done - offset);
      XBLK_CHECK(frame.has_value(), "the device accepted the buffer");
      const auto gref = hypervisor_.grant(backend_, *frame, access);
      if (!gref) break;
      page = {nullptr, *gref};
      ++grants_held_;
      counters_.add(Counter::grants_issued);
      segments.add(*gref, offset, n);
      done += n;
    }
    if (segments.count == pages.size() || !whole) return done;
    // The backend was not told of these grants, but a hostile one can guess a reference: then the page is abandoned.
    static_cast<void>(close(pages.first(std::exchange(segments.count, 0))));
    return 0;
  }

  bool give_back(GrantPool<P>& pool, std::span<GrantedPage> pages) {
    PoolCosts costs;
    const bool ended = pool.give_back(pages, costs);
    count(costs);
    return ended;
  }

  void count(const PoolCosts& costs) {
    if (costs.granted > 0) counters_.add(Counter::grants_issued, costs.granted);
    if (costs.ended > 0) counters_.add(Counter::grants_ended, costs.ended);
    if (costs.wait.contended == 0) return;
    counters_.add(Counter::pool_lock_wait_ns, costs.wait.wait_ns);
    counters_.add(Counter::pool_lock_contended, costs.wait.contended);
  }
  void count_ended(std::uint32_t grants) {
    grants_held_ -= grants;
    counters_.add(Counter::grants_ended, grants);
  }

  typename P::Front& hypervisor_;
  QueueCounters& counters_;
  DomId backend_{};
  Pool data_;
  Pool indirect_;
  std::uint32_t grants_held_ = 0;
  std::vector<GrantRef> abandoned_;
};

}  // namespace xblk::blkfront
