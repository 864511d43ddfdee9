#include "drivers/store/ram_store.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <mutex>
#include <set>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "drivers/store/immediate_queue.hpp"
#include "drivers/store/range.hpp"

namespace xblk::store {
namespace {

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

// What a queue may touch.
struct Extent {
  std::byte* base = nullptr;
  Sectors capacity{};
};

class RamMemory;

// Only a resize ever takes another queue's lock, and only while it moves the memory; so no lock stands between rings.
class RamQueue final : public ImmediateQueue {
 public:
  explicit RamQueue(std::shared_ptr<RamMemory> memory);
  ~RamQueue() override;

  void submit(std::span<const Operation> batch) override {
    const std::lock_guard guard(mutex);
    for (const auto& operation : batch) {
      const bool inside = within(operation, extent.capacity);
      if (inside) apply(operation);
      finish(operation.cookie, inside ? 0 : EIO);
    }
  }

  std::mutex mutex;  // guards the extent, and the memory while a batch runs
  Extent extent;

 private:
  void apply(const Operation& operation) {
    std::byte* at = extent.base + to_bytes(operation.sector).value();
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
};

class RamMemory {
 public:
  explicit RamMemory(Extent extent) : extent_(extent) {}
  RamMemory(const RamMemory&) = delete;
  RamMemory& operator=(const RamMemory&) = delete;
  ~RamMemory() { ::munmap(extent_.base, mapped(extent_.capacity)); }

  static std::size_t mapped(Sectors capacity) { return page_up(to_bytes(capacity).value()); }

  [[nodiscard]] Sectors capacity() const {
    const std::lock_guard guard(mutex_);
    return extent_.capacity;
  }

  // The memory may move, so every queue stands still meanwhile: for the page tables' sake, not for a copy.
  Status resize(Sectors capacity) {
    const std::lock_guard guard(mutex_);
    std::vector<std::unique_lock<std::mutex>> stopped;
    for (RamQueue* queue : queues_) stopped.emplace_back(queue->mutex);
    void* moved = ::mremap(extent_.base, mapped(extent_.capacity), mapped(capacity), MREMAP_MAYMOVE);
    if (moved == MAP_FAILED) return fail_errno(fmt::format("resize a ram store to {} sectors", capacity.value()));
    extent_ = {static_cast<std::byte*>(moved), capacity};
    // What is left of the last page would come back with the next growth.
    const std::size_t end = to_bytes(capacity).value();
    std::memset(extent_.base + end, 0, page_up(end) - end);
    for (RamQueue* queue : queues_) queue->extent = extent_;
    return {};
  }

  void enter(RamQueue& queue) {
    const std::lock_guard guard(mutex_);
    queues_.insert(&queue);
    queue.extent = extent_;
  }
  void leave(RamQueue& queue) {
    const std::lock_guard guard(mutex_);
    queues_.erase(&queue);
  }

 private:
  mutable std::mutex mutex_;  // guards what follows
  Extent extent_;
  std::set<RamQueue*> queues_;
};

RamQueue::RamQueue(std::shared_ptr<RamMemory> memory) : memory_(std::move(memory)) {
  memory_->enter(*this);
}
RamQueue::~RamQueue() {
  memory_->leave(*this);
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
  const std::size_t bytes = RamMemory::mapped(capacity);
  void* base = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (base == MAP_FAILED) return fail_errno(fmt::format("reserve {} bytes for a ram store", bytes));
  return std::make_unique<RamStore>(std::make_shared<RamMemory>(Extent{static_cast<std::byte*>(base), capacity}));
}

}  // namespace xblk::store
