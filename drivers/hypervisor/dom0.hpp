// The control domain's hypercalls (platform::BackHypervisor). Any thread may call; a batch runs on the caller's thread.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <map>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "drivers/base/check.hpp"
#include "drivers/base/result.hpp"
#include "drivers/hypervisor/hypervisor.hpp"
#include "drivers/platform/concepts.hpp"

namespace xblk::hypervisor {

template <class Env>
class Dom0 {
 public:
  explicit Dom0(Hypervisor<Env>& hypervisor) : hypervisor_(hypervisor), regions_lock_(hypervisor.env()) {}
  Dom0(const Dom0&) = delete;
  Dom0& operator=(const Dom0&) = delete;

  // ---- Grants -------------------------------------------------------------------------------------------------------

  // GNTTABOP_map_grant_ref. Operations on adjacent frames, side by side in the batch, share one mapping.
  void map(DomId peer, std::span<platform::MapOp> ops, platform::LockWait& wait) {
    const DomainPtr domain = hypervisor_.find(peer, wait);
    Run run;
    for (std::size_t i = 0; i < ops.size(); ++i) {
      const auto frame = pin(domain, ops[i], spare_for_rings(), wait);
      const bool extends = frame && run.count > 0 && frame->value() == run.frame.value() + run.count &&
                           ops[i].access == ops[run.begin].access;
      if (!extends) {
        finish(domain, ops.subspan(run.begin, run.count), run.frame, wait);
        run = {i, 0, frame.value_or(FrameNumber{})};
      }
      if (frame) ++run.count;
    }
    finish(domain, ops.subspan(run.begin, run.count), run.frame, wait);
  }

  // GNTTABOP_unmap_grant_ref. As on Xen, the status bits of a grant are cleared only after its page has left the
  // address space: from then on the guest may reuse it.
  void unmap(std::span<platform::UnmapOp> ops, platform::LockWait& wait) {
    while (!ops.empty()) {
      const auto batch = ops.first(std::min(ops.size(), kUnmapBatch));
      unmap_batch(batch, wait);
      ops = ops.subspan(batch.size());
    }
  }

  // GNTTABOP_copy: the page is pinned for the time of the copy and never enters the address space.
  void copy(DomId peer, std::span<platform::CopyOp> ops, platform::LockWait& wait) {
    const DomainPtr domain = hypervisor_.find(peer, wait);
    for (auto& op : ops) op.status = domain ? copy_one(*domain, op, wait) : platform::GrantStatus::bad_domain;
  }

  // All pages side by side in the order of `grefs`, for writing, or none and one line about the first that failed.
  Result<std::byte*> map_contiguous(DomId peer, std::span<const GrantRef> grefs) {
    platform::LockWait wait;
    const DomainPtr domain = hypervisor_.find(peer, wait);
    std::vector<platform::MapOp> ops(grefs.size());
    std::vector<FrameNumber> frames;
    for (std::size_t i = 0; i < grefs.size(); ++i) {
      ops[i].gref = grefs[i];
      const auto frame = pin(domain, ops[i], 0, wait);
      if (!frame) {
        unpin(domain, std::span(ops).first(i), ops[i].status, wait);
        if (ops[i].status == platform::GrantStatus::no_device_space) {
          return fail(ENOMEM, fmt::format("map a ring of {} pages of domain {}: all {} mappings of the host are in use "
                                          "(vm.max_map_count, or the host's own limit)",
                                          ops.size(), peer.value(), hypervisor_.maptrack().limit()));
        }
        return fail(EINVAL, fmt::format("map ring page {} (grant {} of domain {}): grant status {}", i,
                                        grefs[i].value(), peer.value(), static_cast<int>(ops[i].status)));
      }
      frames.push_back(*frame);
    }
    if (frames.empty()) return fail(EINVAL, fmt::format("map a ring of domain {}: no grants given", peer.value()));
    const auto window = domain->memory.map_scattered(frames, platform::Access::read_write);
    if (!window) {
      unpin(domain, ops, platform::GrantStatus::no_device_space, wait);
      return forward(window.error(), fmt::format("map a ring of {} pages of domain {}", ops.size(), peer.value()));
    }
    publish(domain, ops, *window, wait);
    Region region;
    for (const auto& op : ops) region.push_back({op.handle, op.address});
    const Exclusive guard(regions_lock_, wait);
    regions_.emplace(*window, std::move(region));
    return *window;
  }

  void unmap_contiguous(std::byte* address, std::uint32_t pages) {
    platform::LockWait wait;
    Region region;
    {
      const Exclusive guard(regions_lock_, wait);
      const auto found = regions_.find(address);
      XBLK_CHECK(found != regions_.end() && found->second.size() == pages, "unmap what map_contiguous() returned");
      region = std::move(found->second);
      regions_.erase(found);
    }
    unmap(region, wait);
  }

  // ---- Event channels -----------------------------------------------------------------------------------------------

  Result<EventPort> bind_interdomain(DomId peer, EventPort remote) {
    return hypervisor_.channels().bind_interdomain(ports(), peer, remote);
  }
  void notify(EventPort port) { ports().notify(port); }
  bool consume(EventPort port) { return ports().consume(port); }
  void mask(EventPort port) { ports().mask(port); }
  void unmask(EventPort port) { ports().unmask(port); }
  [[nodiscard]] typename Env::Waitable waitable(EventPort port) { return ports().waitable(port); }
  void close_port(EventPort port) { hypervisor_.channels().close(ports(), port); }

 private:
  using DomainPtr = typename Hypervisor<Env>::DomainPtr;
  using Mapping = typename Hypervisor<Env>::Mapping;
  using Region = std::vector<platform::UnmapOp>;
  static constexpr std::size_t kUnmapBatch = 32;  // GNTTAB_UNMAP_BATCH_SIZE: bounds what is held half-done

  struct Run {  // operations [begin, begin + count) whose frames start at `frame` and are adjacent
    std::size_t begin = 0;
    std::size_t count = 0;
    FrameNumber frame{};
  };

  // Pages that are mapped one by one have an alternative, grant copy; rings have none. Of the default vm.max_map_count
  // this is enough for 64 devices with 4 of the largest rings, so that no cache of one device keeps another from
  // connecting.
  [[nodiscard]] std::uint32_t spare_for_rings() const { return hypervisor_.maptrack().limit() / 8; }

  // First half of a map: a handle and a pin, or a failed status and nothing held. `spare`: handles to be left.
  std::optional<FrameNumber> pin(const DomainPtr& domain, platform::MapOp& op, std::uint32_t spare,
                                 platform::LockWait& wait) {
    op.address = nullptr;
    op.handle = {};
    op.status = platform::GrantStatus::bad_domain;
    if (domain == nullptr) return std::nullopt;
    const auto handle = hypervisor_.maptrack().allocate(wait, spare);
    if (!handle) {
      op.status = platform::GrantStatus::no_device_space;
      return std::nullopt;
    }
    const Acquired acquired = domain->grants.acquire(op.gref, kDom0, op.access, wait);
    op.status = acquired.status;
    if (acquired.status != platform::GrantStatus::okay) {
      hypervisor_.maptrack().release(*handle, wait);
      return std::nullopt;
    }
    op.handle = *handle;
    return acquired.frame;
  }

  void unpin(const DomainPtr& domain, std::span<platform::MapOp> ops, platform::GrantStatus why,
             platform::LockWait& wait) {
    for (auto& op : ops) {
      domain->grants.release(op.gref, op.access, wait);
      hypervisor_.maptrack().release(op.handle, wait);
      op.handle = {};
      op.status = why;
    }
  }

  // Second half of a map, for pinned operations on adjacent frames.
  void finish(const DomainPtr& domain, std::span<platform::MapOp> ops, FrameNumber first, platform::LockWait& wait) {
    if (ops.empty()) return;
    const auto address = domain->memory.map(first, static_cast<std::uint32_t>(ops.size()), ops.front().access);
    if (!address) return unpin(domain, ops, platform::GrantStatus::no_device_space, wait);
    publish(domain, ops, *address, wait);
  }

  void publish(const DomainPtr& domain, std::span<platform::MapOp> ops, std::byte* address, platform::LockWait& wait) {
    for (auto& op : ops) {
      op.address = address;
      hypervisor_.maptrack().publish(op.handle, {domain, op.gref, op.access, address}, wait);
      address += kPageSize;
    }
  }

  void unmap_batch(std::span<platform::UnmapOp> ops, platform::LockWait& wait) {
    std::array<std::optional<Mapping>, kUnmapBatch> held;
    for (std::size_t i = 0; i < ops.size(); ++i) {
      const auto same_address = [&](const Mapping& mapping) { return mapping.address == ops[i].address; };
      held[i] = hypervisor_.maptrack().claim(ops[i].handle, same_address, wait);
      ops[i].status = held[i] ? platform::GrantStatus::okay : platform::GrantStatus::bad_handle;
    }
    take_out(ops, held);
    for (std::size_t i = 0; i < ops.size(); ++i) {
      if (!held[i]) continue;
      held[i]->domain->grants.release(held[i]->gref, held[i]->access, wait);
      hypervisor_.maptrack().release(ops[i].handle, wait);
    }
  }

  // Pages side by side leave in one go, whatever their order in the batch: the kernel gives single mappings the first
  // gap that fits, so pages that were mapped one after another mostly are neighbours.
  static void take_out(std::span<const platform::UnmapOp> ops,
                       const std::array<std::optional<Mapping>, kUnmapBatch>& held) {
    std::array<std::byte*, kUnmapBatch> pages;
    std::size_t count = 0;
    for (std::size_t i = 0; i < ops.size(); ++i) {
      if (held[i]) pages[count++] = ops[i].address;
    }
    std::sort(pages.begin(), pages.begin() + count);
    for (std::size_t first = 0, end = 0; first < count; first = end) {
      for (end = first + 1; end < count && pages[end] == pages[end - 1] + kPageSize;) ++end;
      Env::Memory::unmap(pages[first], static_cast<std::uint32_t>(end - first));
    }
  }

  platform::GrantStatus copy_one(Domain<Env>& domain, const platform::CopyOp& op, platform::LockWait& wait) {
    if (std::size_t{op.offset} + op.length > kPageSize || op.local == nullptr) {
      return platform::GrantStatus::bad_copy_arg;
    }
    const bool reading = op.direction == platform::CopyOp::Direction::from_grant;
    const auto access = reading ? platform::Access::read_only : platform::Access::read_write;
    const Acquired acquired = domain.grants.acquire(op.gref, kDom0, access, wait);
    if (acquired.status != platform::GrantStatus::okay) return acquired.status;
    std::byte* granted = domain.page(acquired.frame) + op.offset;
    std::memcpy(reading ? op.local : granted, reading ? granted : op.local, op.length);
    domain.grants.release(op.gref, access, wait);
    return platform::GrantStatus::okay;
  }

  [[nodiscard]] typename Hypervisor<Env>::Ports& ports() { return hypervisor_.control_ports(); }

  Hypervisor<Env>& hypervisor_;
  typename Env::Mutex regions_lock_;
  std::multimap<std::byte*, Region> regions_;  // by address; without an MMU two mappings of a page share it
};

}  // namespace xblk::hypervisor
