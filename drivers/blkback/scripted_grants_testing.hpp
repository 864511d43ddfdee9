// A hypervisor whose grant operations do what a test says, reference by reference, and that keeps books: what is mapped
// now, and how large each batch was. For tests of GrantedPages.
#pragma once

#include <cstring>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "drivers/env/virtual/memory_store.hpp"
#include "drivers/env/virtual/virtual_env.hpp"
#include "drivers/hypervisor/dom0.hpp"
#include "drivers/hypervisor/in_process_guest.hpp"

namespace xblk::blkback {

// The base only gives what GrantedPages never calls: events and rings.
class ScriptedGrants : public hypervisor::Dom0<env::VirtualEnv> {
 public:
  using Dom0::Dom0;

  void map(DomId, std::span<platform::MapOp> ops, platform::LockWait&) {
    map_batches.push_back(ops.size());
    for (auto& op : ops) {
      accesses.push_back(op.access);
      op.status = find(map_refusals, op.gref);
      if (op.status != platform::GrantStatus::okay) continue;
      op.handle = MapHandle(next_handle_++);
      op.address = page(op.gref);
      mapped.emplace(op.handle, op.address);
    }
  }
  void unmap(std::span<platform::UnmapOp> ops, platform::LockWait&) {
    unmap_batches.push_back(ops.size());
    for (auto& op : ops) {
      const auto found = mapped.find(op.handle);
      const bool right = found != mapped.end() && found->second == op.address;
      op.status = right ? platform::GrantStatus::okay : platform::GrantStatus::bad_handle;
      if (right) mapped.erase(found);
    }
  }
  void copy(DomId, std::span<platform::CopyOp> ops, platform::LockWait&) {
    copy_batches.push_back(ops.size());
    for (auto& op : ops) {
      op.status = find(copy_refusals, op.gref);
      if (op.status != platform::GrantStatus::okay) continue;
      std::byte* granted = page(op.gref) + op.offset;
      const bool reading = op.direction == platform::CopyOp::Direction::from_grant;
      std::memcpy(reading ? op.local : granted, reading ? granted : op.local, op.length);
    }
  }

  // The frontend's page behind a reference. New pages are filled with `pattern_of` it.
  [[nodiscard]] std::byte* page(GrantRef gref) {
    auto& page = granted_[gref];
    if (page == nullptr) page = new_page(pattern_of(gref));
    return page->bytes;
  }
  static std::byte pattern_of(GrantRef gref) { return static_cast<std::byte>(gref.value() * 7 + 1); }
  // The frontend ends the grant and grants another page under the same number.
  void regrant(GrantRef gref, std::byte pattern) {
    retired_.push_back(std::move(granted_[gref]));
    granted_[gref] = new_page(pattern);
  }

  // What operations on these references are answered with.
  std::map<GrantRef, platform::GrantStatus> map_refusals;
  std::map<GrantRef, platform::GrantStatus> copy_refusals;
  // The books.
  std::map<MapHandle, std::byte*> mapped;
  std::vector<std::size_t> map_batches;
  std::vector<std::size_t> unmap_batches;
  std::vector<std::size_t> copy_batches;
  std::vector<platform::Access> accesses;

 private:
  struct alignas(kPageSize) Page {
    std::byte bytes[kPageSize];
  };
  static std::unique_ptr<Page> new_page(std::byte pattern) {
    auto page = std::make_unique<Page>();
    std::memset(page->bytes, static_cast<int>(pattern), kPageSize);
    return page;
  }
  static platform::GrantStatus find(const std::map<GrantRef, platform::GrantStatus>& refusals, GrantRef gref) {
    const auto found = refusals.find(gref);
    return found == refusals.end() ? platform::GrantStatus::okay : found->second;
  }

  std::map<GrantRef, std::unique_ptr<Page>> granted_;
  std::vector<std::unique_ptr<Page>> retired_;
  std::uint32_t next_handle_ = 1;
};

struct ScriptedPlatform {
  using Env = env::VirtualEnv;
  using Front = hypervisor::InProcessGuest<Env>;
  using Back = ScriptedGrants;
  using Keys = env::MemoryKeys;
};

}  // namespace xblk::blkback
