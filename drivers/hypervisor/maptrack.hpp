// Maptrack: the handles under which a mapping domain holds other domains' pages.
//
// A handle is an index and a generation that changes at each reuse, so a stale or repeated unmap names no mapping
// instead of somebody else's. The number of handles is the bound on mappings: each live page costs at most one entry of
// vm.max_map_count, so with the limit below that sysctl neither mmap nor the munmap that splits an area can run out.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "drivers/base/check.hpp"
#include "drivers/base/units.hpp"
#include "drivers/hypervisor/lock_policy.hpp"
#include "drivers/platform/grants.hpp"

namespace xblk::hypervisor {

inline constexpr std::uint32_t kMaptrackLimitMax = 1u << 20;  // bits of a handle that are the index

// A small number that is stable for the calling thread: which maptrack list it uses first.
[[nodiscard]] inline std::uint32_t thread_ordinal() {
  static std::atomic<std::uint32_t> next{0};
  thread_local const std::uint32_t mine = next.fetch_add(1, std::memory_order_relaxed);
  return mine;
}

// Entry: what a mapping consists of; owned by the slot from publish() until claim().
template <class Env, class Entry>
class Maptrack {
 public:
  Maptrack(Env& env, GrantLocks locks, std::uint32_t limit, std::uint32_t lists)
      : locks_(locks), mutex_(env), slots_(std::make_unique<Slot[]>(limit)), limit_(limit) {
    XBLK_CHECK(limit > 0 && limit <= kMaptrackLimitMax, "a handle has 20 bits for the index");
    list_count_ = locks == GrantLocks::coarse ? 1 : std::clamp(lists, 1u, limit);
    lists_ = std::make_unique<FreeList[]>(list_count_);
    for (std::uint32_t i = limit; i-- > 0;) push(slots_[i].home = i % list_count_, i);
  }

  // Nothing: all handles are in use (GNTST_no_device_space), but for `spare` that are kept for others.
  std::optional<MapHandle> allocate(platform::LockWait& wait, std::uint32_t spare = 0) {
    const std::uint32_t first = list_count_ == 1 ? 0 : thread_ordinal() % list_count_;
    for (std::uint32_t i = 0; i < list_count_; ++i) {
      const std::uint32_t list = (first + i) % list_count_;  // i > 0: steal from another worker's list
      const std::uint32_t kept = (spare + list_count_ - 1 - list) / list_count_;  // this list's part of `spare`
      const std::uint32_t index = with_list(list, wait, [&] { return lists_[list].length > kept ? pop(list) : kNone; });
      if (index != kNone) return make_handle(index);
    }
    return std::nullopt;
  }

  // Makes an allocated handle valid for claim().
  void publish(MapHandle handle, Entry entry, platform::LockWait& wait) {
    Slot& slot = slots_[index_of(handle)];
    with_slot(slot, wait, [&] { slot.entry.emplace(std::move(entry)); });
  }

  // Takes the entry out: exactly one of several claims of a handle gets it, and only if `matches` says so. The handle
  // itself stays allocated until release(), so that it is not reused before the page is really unmapped.
  template <class Predicate>
  std::optional<Entry> claim(MapHandle handle, Predicate matches, platform::LockWait& wait) {
    if (index_of(handle) >= limit_) return std::nullopt;
    Slot& slot = slots_[index_of(handle)];
    return with_slot(slot, wait, [&]() -> std::optional<Entry> {
      const bool current = slot.generation.load(std::memory_order_relaxed) == generation_of(handle);
      if (!current || !slot.entry || !matches(*slot.entry)) return std::nullopt;
      return std::exchange(slot.entry, std::nullopt);
    });
  }

  void release(MapHandle handle, platform::LockWait& wait) {
    const std::uint32_t index = index_of(handle);
    Slot& slot = slots_[index];
    const std::uint32_t next = (slot.generation.load(std::memory_order_relaxed) + 1) % kGenerations;
    slot.generation.store(next, std::memory_order_relaxed);
    with_list(slot.home, wait, [&] { push(slot.home, index); });
  }

  [[nodiscard]] std::uint32_t limit() const { return limit_; }
  [[nodiscard]] std::uint32_t in_use() {
    platform::LockWait wait;
    std::uint32_t unused = 0;
    for (std::uint32_t i = 0; i < list_count_; ++i) {
      with_list(i, wait, [&] { unused += lists_[i].length; });
    }
    return limit_ - unused;
  }

 private:
  static constexpr std::uint32_t kNone = ~0u;
  static constexpr std::uint32_t kIndexBits = 20;
  static constexpr std::uint32_t kGenerations = 1u << (32 - kIndexBits);

  struct Slot {
    typename Env::SpinLock lock;  // split: guards `entry`; coarse: mutex_ does
    // Changed only by the holder of an allocated handle, read by anybody with an old one.
    std::atomic<std::uint32_t> generation{0};
    std::uint32_t next = kNone;  // guarded by the list it is on
    std::uint32_t home = 0;      // the list it returns to, so that stealing does not drift
    std::optional<Entry> entry;
  };
  struct alignas(64) FreeList {
    typename Env::SpinLock lock;
    std::uint32_t head = kNone;
    std::uint32_t length = 0;
  };

  static std::uint32_t index_of(MapHandle handle) { return handle.value() & (kMaptrackLimitMax - 1); }
  static std::uint32_t generation_of(MapHandle handle) { return handle.value() >> kIndexBits; }
  MapHandle make_handle(std::uint32_t index) const {
    return MapHandle(slots_[index].generation.load(std::memory_order_relaxed) << kIndexBits | index);
  }

  template <class Body>
  auto with_list(std::uint32_t list, platform::LockWait& wait, Body body) {
    if (locks_ == GrantLocks::coarse) {
      const Exclusive guard(mutex_, wait);
      return body();
    }
    const Exclusive guard(lists_[list].lock, wait);
    return body();
  }
  template <class Body>
  auto with_slot(Slot& slot, platform::LockWait& wait, Body body) {
    if (locks_ == GrantLocks::coarse) {
      const Exclusive guard(mutex_, wait);
      return body();
    }
    const Exclusive guard(slot.lock, wait);
    return body();
  }

  void push(std::uint32_t list, std::uint32_t index) {
    slots_[index].next = std::exchange(lists_[list].head, index);
    ++lists_[list].length;
  }
  std::uint32_t pop(std::uint32_t list) {
    const std::uint32_t index = lists_[list].head;
    if (index == kNone) return kNone;
    lists_[list].head = slots_[index].next;
    --lists_[list].length;
    return index;
  }

  const GrantLocks locks_;
  typename Env::Mutex mutex_;  // coarse: lists and entries
  std::unique_ptr<Slot[]> slots_;
  const std::uint32_t limit_;
  std::uint32_t list_count_ = 1;
  std::unique_ptr<FreeList[]> lists_;
};

}  // namespace xblk::hypervisor
