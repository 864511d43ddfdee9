#include "drivers/store/memory_stores.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include <fmt/format.h>

#include "drivers/base/check.hpp"

namespace xblk::store {
namespace {

// Stores that finish inside submit(): the results wait here for reap().
class ImmediateQueue : public Queue {
 public:
  unsigned reap(std::span<Finished> into) final {
    const std::size_t n = std::min(into.size(), finished_.size());
    std::copy_n(finished_.begin(), n, into.begin());
    finished_.erase(finished_.begin(), finished_.begin() + static_cast<std::ptrdiff_t>(n));
    return static_cast<unsigned>(n);
  }

 protected:
  void finish(std::uint64_t cookie) { finished_.push_back({cookie, 0}); }

 private:
  std::vector<Finished> finished_;
};

class NullQueue final : public ImmediateQueue {
 public:
  void submit(std::span<const Operation> batch) override {
    for (const auto& operation : batch) finish(operation.cookie);
  }
};

class NullStore final : public Store {
 public:
  explicit NullStore(Sectors capacity) { geometry_.capacity = capacity; }
  [[nodiscard]] Geometry geometry() const override { return geometry_; }
  [[nodiscard]] Result<std::unique_ptr<Queue>> open_queue() override { return std::make_unique<NullQueue>(); }

 private:
  Geometry geometry_;
};

struct Anonymous {
  std::byte* base = nullptr;
  std::size_t size = 0;
  Anonymous(std::byte* b, std::size_t s) : base(b), size(s) {}
  Anonymous(const Anonymous&) = delete;
  Anonymous& operator=(const Anonymous&) = delete;
  ~Anonymous() { ::munmap(base, size); }
};

class RamQueue final : public ImmediateQueue {
 public:
  explicit RamQueue(std::shared_ptr<Anonymous> memory) : memory_(std::move(memory)) {}

  void submit(std::span<const Operation> batch) override {
    for (const auto& operation : batch) {
      apply(operation);
      finish(operation.cookie);
    }
  }

 private:
  void apply(const Operation& operation) {
    std::byte* at = memory_->base + to_bytes(operation.sector).value();
    XBLK_CHECK(to_bytes(operation.sector + operation.count).value() <= memory_->size, "the ring checked the range");
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

  // Whole pages go back to the kernel; the ragged ends are zeroed, so that a discarded sector always reads as zeros.
  static void discard(std::byte* at, std::size_t bytes) {
    const auto start = reinterpret_cast<std::uintptr_t>(at);
    const std::size_t head = std::min(bytes, (kPageSize - start % kPageSize) % kPageSize);
    std::memset(at, 0, head);
    const std::size_t whole = (bytes - head) / kPageSize * kPageSize;
    if (whole > 0) ::madvise(at + head, whole, MADV_DONTNEED);
    std::memset(at + head + whole, 0, bytes - head - whole);
  }

  std::shared_ptr<Anonymous> memory_;
};

class RamStore final : public Store {
 public:
  RamStore(std::byte* base, Sectors capacity) : memory_(std::make_shared<Anonymous>(base, to_bytes(capacity).value())) {
    geometry_.capacity = capacity;
  }
  [[nodiscard]] Geometry geometry() const override { return geometry_; }
  [[nodiscard]] Result<std::unique_ptr<Queue>> open_queue() override { return std::make_unique<RamQueue>(memory_); }

 private:
  Geometry geometry_;
  std::shared_ptr<Anonymous> memory_;
};

}  // namespace

std::unique_ptr<Store> make_null_store(Sectors capacity) {
  return std::make_unique<NullStore>(capacity);
}

Result<std::unique_ptr<Store>> make_ram_store(Sectors capacity) {
  const std::size_t bytes = to_bytes(capacity).value();
  void* base = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (base == MAP_FAILED) return fail_errno(fmt::format("reserve {} bytes for a ram store", bytes));
  return std::make_unique<RamStore>(static_cast<std::byte*>(base), capacity);
}

}  // namespace xblk::store
