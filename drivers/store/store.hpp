// The backing-store port: where blocks live. One virtual call per batch, so its cost is spread over the batch.
//
// A Store is shared and knows its geometry; each ring opens one Queue of its own, used by that ring's worker only, so
// that no lock stands between rings (architecture, "the store port").
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "drivers/base/result.hpp"
#include "drivers/base/units.hpp"

namespace xblk::store {

enum class Op : std::uint8_t { read, write, flush, discard };

// A stretch of the backend's memory; whole sectors.
struct Piece {
  std::byte* address = nullptr;
  std::uint32_t bytes = 0;
};

// `pieces` must stay valid until the operation has been reaped. The caller has checked the range against capacity().
struct Operation {
  Op op = Op::read;
  Sectors sector{};
  Sectors count{};  // equals the sum of the pieces for read and write; the range for discard; 0 for flush
  std::span<const Piece> pieces;
  std::uint64_t cookie = 0;
};

struct Finished {
  std::uint64_t cookie = 0;
  int error = 0;  // errno value
};

class Queue {
 public:
  virtual ~Queue() = default;
  // Takes the whole batch. Never blocks; a failure is reported by reap().
  virtual void submit(std::span<const Operation> batch) = 0;
  // Finished operations in any order; returns how many were stored.
  virtual unsigned reap(std::span<Finished> into) = 0;
  // A descriptor that polls readable when reap() has something; -1 for stores that finish inside submit().
  [[nodiscard]] virtual int completion_fd() const { return -1; }
};

struct Geometry {
  Sectors capacity{};
  std::uint32_t sector_size = kSectorSize;  // bytes
  bool flush = true;                        // has a volatile cache, or can at least order a flush
  bool discard = true;
  std::uint32_t discard_granularity = kSectorSize;  // bytes
};

class Store {
 public:
  virtual ~Store() = default;
  [[nodiscard]] virtual Geometry geometry() const = 0;
  [[nodiscard]] virtual Result<std::unique_ptr<Queue>> open_queue() = 0;
};

// "null:SIZE" or "ram:SIZE" (SIZE with KiB, MiB, GiB), as in the `params` key. The error says what is wrong with which
// part.
Result<std::unique_ptr<Store>> open_store(const std::string& specification);

}  // namespace xblk::store
