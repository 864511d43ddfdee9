// The only place that orders accesses to shared memory.
//
// Xen's rings use wmb()/rmb()/mb() around plain accesses. Here every shared index is accessed through std::atomic_ref
// instead: a release store pairs with an acquire load *on the same index*, which orders exactly the same accesses, is
// free on x86, and is a form that ThreadSanitizer understands (it does not model stand-alone fences).
// The one place where release/acquire is not enough is "publish my index, then read yours" (hold-off in ring.h): a
// store followed by a load of another location. There both ends use sequentially consistent accesses
// (`publish_and_load`).
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace xblk::platform {

// Orders: the reader's later loads of ring slots after this load of the index. Peer: store_release in the writer.
template <class T>
[[nodiscard]] inline T load_acquire(const T& shared) {
  return std::atomic_ref<T>(const_cast<T&>(shared)).load(std::memory_order_acquire);
}

// Orders: the writer's earlier stores to ring slots before this store of the index. Peer: load_acquire in the reader.
template <class T>
inline void store_release(T& shared, T value) {
  std::atomic_ref<T>(shared).store(value, std::memory_order_release);
}

// Store `mine`, then load `theirs`, and never the other way round: the store-load barrier (mb()) of
// RING_PUSH_*_AND_CHECK_NOTIFY and RING_FINAL_CHECK_FOR_*. Both ends go through here, so of two ends that each publish
// an index and then look at the other's, at least one sees the other's store: no wake-up is lost.
template <class T>
[[nodiscard]] inline T publish_and_load(T& mine, T value, const T& theirs) {
  std::atomic_ref<T>(mine).store(value, std::memory_order_seq_cst);
  return std::atomic_ref<T>(const_cast<T&>(theirs)).load(std::memory_order_seq_cst);
}

// Copies out of memory that the peer may change at any moment, reading each byte at most once (XSA-155: a compiler
// that is free to re-read would undo every later check). Word-wise relaxed atomics forbid the second read.
inline void copy_from_shared(void* to, const void* from, std::size_t size) {
  auto* out = static_cast<std::byte*>(to);
  const auto* in = static_cast<const std::byte*>(from);
  while (size >= sizeof(std::uint64_t) && reinterpret_cast<std::uintptr_t>(in) % sizeof(std::uint64_t) == 0) {
    const std::uint64_t word = __atomic_load_n(reinterpret_cast<const std::uint64_t*>(in), __ATOMIC_RELAXED);
    std::memcpy(out, &word, sizeof word);
    in += sizeof word;
    out += sizeof word;
    size -= sizeof word;
  }
  while (size >= sizeof(std::uint32_t) && reinterpret_cast<std::uintptr_t>(in) % sizeof(std::uint32_t) == 0) {
    const std::uint32_t word = __atomic_load_n(reinterpret_cast<const std::uint32_t*>(in), __ATOMIC_RELAXED);
    std::memcpy(out, &word, sizeof word);
    in += sizeof word;
    out += sizeof word;
    size -= sizeof word;
  }
  for (; size > 0; --size)
    *out++ = static_cast<std::byte>(__atomic_load_n(reinterpret_cast<const unsigned char*>(in++), __ATOMIC_RELAXED));
}

// The writing counterpart: a peer that reads too early gets torn words, never a compiler-invented intermediate value.
inline void copy_to_shared(void* to, const void* from, std::size_t size) {
  auto* out = static_cast<std::byte*>(to);
  const auto* in = static_cast<const std::byte*>(from);
  while (size >= sizeof(std::uint64_t) && reinterpret_cast<std::uintptr_t>(out) % sizeof(std::uint64_t) == 0) {
    std::uint64_t word;
    std::memcpy(&word, in, sizeof word);
    __atomic_store_n(reinterpret_cast<std::uint64_t*>(out), word, __ATOMIC_RELAXED);
    in += sizeof word;
    out += sizeof word;
    size -= sizeof word;
  }
  while (size >= sizeof(std::uint32_t) && reinterpret_cast<std::uintptr_t>(out) % sizeof(std::uint32_t) == 0) {
    std::uint32_t word;
    std::memcpy(&word, in, sizeof word);
    __atomic_store_n(reinterpret_cast<std::uint32_t*>(out), word, __ATOMIC_RELAXED);
    in += sizeof word;
    out += sizeof word;
    size -= sizeof word;
  }
  for (; size > 0; --size)
    __atomic_store_n(reinterpret_cast<unsigned char*>(out++), static_cast<unsigned char>(*in++), __ATOMIC_RELAXED);
}

}  // namespace xblk::platform
