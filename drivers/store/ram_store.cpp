#include "drivers/store/ram_store.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <mutex>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "drivers/base/check.hpp"
#include "drivers/store/immediate_queue.hpp"
#include "drivers/store/range.hpp"

namespace xblk::store {
namespace {

// Address space that a store keeps for growth, since memory that queues use cannot move. 500 stores fit into the 128
// TiB of a process; a store opened with more than this can only shrink and grow back.
constexpr std::uint64_t kReserved = std::uint64_t{256} << 30;  // bytes

std::size_t page_up(std::size_t bytes) {
  return (bytes + kPageSize - 1) / kPageSize * kPageSize;
}

// Whole pages go back to the kernel; the ragged ends are zeroed, so that a discarded sector always reads as zeros.
void discard(std::byte* at, std::size_t bytes) {
  const auto start = reinterpret_cast<std::uintptr_t>(at);
  const std::size_t head = std::min(bytes, (kPageSize - start % kPageSize) % kPageSize);
  std::memset(at, 0, head);
  const std::size_t whole = (bytes - head) / kPageSize * kPageSize;
  if (whole > 0) ::madvise(at + head, whole, MADV_DONTNEED);
  std::memset(at + head + whole, 0, bytes - head - whole);
}

class RamQueue;

// Reserved address space, of which the first capacity() is usable.
class RamMemory {
 public:
  RamMemory(std::byte* base, std::size_t reserved) : base_(base), reserved_(reserved) {}
  RamMemory(const RamMemory&) = delete;
  RamMemory& operator=(const RamMemory&) = delete;
  ~RamMemory() { ::munmap(base_, reserved_); }

  [[nodiscard]] std::byte* base() const { return base_; }
  [[nodiscard]] Sectors capacity() const {
    const std::lock_guard guard(mutex_);
    return capacity_;
  }
  Status resize(Sectors capacity);
  void enter(RamQueue& queue);
  void leave(RamQueue& queue);

 private:
  Status grow(std::size_t from, std::size_t to) {
    if (to > reserved_) {
      return fail(ENOMEM, fmt::format("this ram store can grow to {} GiB at most; reconnect to reopen it",
                                      reserved_ / (std::size_t{1} << 30)));
    }
    const std::size_t first = page_up(from);
    const std::size_t bytes = page_up(to) - std::min(first, page_up(to));
    if (::mprotect(base_ + first, bytes, PROT_READ | PROT_WRITE) != 0)
      return fail_errno(fmt::format("grow a ram store to {} bytes", to));
    return {};
  }
  // No queue is inside the range any more.
  void shrink(std::size_t from, std::size_t to) {
    discard(base_ + to, from - to);
    ::mprotect(base_ + page_up(to), page_up(from) - page_up(to), PROT_NONE);
  }
  void tell_queues(Sectors capacity);

  std::byte* base_;
  std::size_t reserved_;
  mutable std::mutex mutex_;  // guards what follows
  Sectors capacity_{};
  std::set<RamQueue*> queues_;
};

// The lock is this queue's own: only a resize ever waits for it, and then no batch can reach beyond the new end.
class RamQueue final : public ImmediateQueue {
 public:
  explicit RamQueue(std::shared_ptr<RamMemory> memory) : memory_(std::move(memory)) { memory_->enter(*this); }
  ~RamQueue() override { memory_->leave(*this); }

  void submit(std::span<const Operation> batch) override {
    const std::lock_guard guard(mutex_);
    for (const auto& operation : batch) {
      const bool inside = within(operation, capacity_);
      if (inside) apply(operation);
      finish(operation.cookie, inside ? 0 : EIO);
    }
  }

  void set_capacity(Sectors capacity) {
    const std::lock_guard guard(mutex_);
    capacity_ = capacity;
  }

 private:
  void apply(const Operation& operation) {
    std::byte* at = memory_->base() + to_bytes(operation.sector).value();
    switch (operation.op) {
      case Op::read:
        for (const auto& piece : operation.pieces) {
          std::memcpy(piece.address, at, piece.bytes);
          at += piece.bytes;
        }
        break;
      case Op::write:
        for (const auto& piece : operation.pieces) {
          std::memcpy(at, piece.address, piece.bytes);
          at += piece.bytes;
        }
        break;
      case Op::discard:
        discard(at, to_bytes(operation.count).value());
        break;
      case Op::flush:
        break;  // memory has no volatile cache
    }
  }

  std::shared_ptr<RamMemory> memory_;
  std::mutex mutex_;  // guards capacity_, and the memory below it while a batch runs
  Sectors capacity_{};
};

void RamMemory::tell_queues(Sectors capacity) {
  capacity_ = capacity;
  for (RamQueue* queue : queues_) queue->set_capacity(capacity);
}

Status RamMemory::resize(Sectors capacity) {
  const std::lock_guard guard(mutex_);
  const std::size_t from = to_bytes(capacity_).value();
  const std::size_t to = to_bytes(capacity).value();
  if (to > from) {
    if (auto grown = grow(from, to); !grown) return grown;
  }
  tell_queues(capacity);
  if (to < from) shrink(from, to);
  return {};
}

void RamMemory::enter(RamQueue& queue) {
  const std::lock_guard guard(mutex_);
  queues_.insert(&queue);
  queue.set_capacity(capacity_);
}

void RamMemory::leave(RamQueue& queue) {
  const std::lock_guard guard(mutex_);
  queues_.erase(&queue);
}

class RamStore final : public Store {
 public:
  explicit RamStore(std::shared_ptr<RamMemory> memory) : memory_(std::move(memory)) {}
  [[nodiscard]] Geometry geometry() const override {
    Geometry geometry;
    geometry.capacity = memory_->capacity();
    geometry.secure_discard = true;  // the pages are given back, and come again as zeros
    return geometry;
  }
  [[nodiscard]] Result<std::unique_ptr<Queue>> open_queue() override { return std::make_unique<RamQueue>(memory_); }
  Status resize(Sectors capacity) override {
    if (capacity == Sectors(0)) return fail(EINVAL, "a ram store needs a size");
    return memory_->resize(capacity);
  }
  [[nodiscard]] std::string description() const override {
    return fmt::format("ram, {} sectors", memory_->capacity().value());
  }

 private:
  std::shared_ptr<RamMemory> memory_;
};

}  // namespace

Result<std::unique_ptr<Store>> make_ram_store(Sectors capacity) {
  const std::size_t reserved = std::max<std::size_t>(page_up(to_bytes(capacity).value()), kReserved);
  void* base = ::mmap(nullptr, reserved, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (base == MAP_FAILED) return fail_errno(fmt::format("reserve {} bytes of address space for a ram store", reserved));
  auto memory = std::make_shared<RamMemory>(static_cast<std::byte*>(base), reserved);
  if (auto sized = memory->resize(capacity); !sized) return tl::unexpected(sized.error());
  return std::make_unique<RamStore>(std::move(memory));
}

}  // namespace xblk::store
