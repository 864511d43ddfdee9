// The backing-store port: where blocks live. One virtual call per batch, so its cost is spread over the batch.
//
// A Store is shared and knows its geometry; each ring opens one Queue of its own, used by that ring's worker only, so
// that no lock stands between rings (architecture, "the store port").
#pragma once

#include <cerrno>
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
  bool secure = false;  // discard: nothing of the data may be readable afterwards (BLKIF_DISCARD_SECURE)
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
  bool secure_discard = false;
  std::uint32_t discard_granularity = kSectorSize;  // bytes
  std::uint32_t discard_alignment = 0;              // bytes
};

class Store {
 public:
  virtual ~Store() = default;
  [[nodiscard]] virtual Geometry geometry() const = 0;
  [[nodiscard]] virtual Result<std::unique_ptr<Queue>> open_queue() = 0;
  // Live, with queues open and busy. What lies beyond a smaller size is lost; an operation there fails.
  virtual Status resize(Sectors /*capacity*/) { return fail(EOPNOTSUPP, "this store has a fixed size"); }
};

// A specification taken apart, as far as a device must tell a resize from another store.
struct Specification {
  std::string kind;
  Sectors size{};
  [[nodiscard]] bool same_store_as(const Specification& other) const { return kind == other.kind; }
};
Result<Specification> parse_specification(const std::string& specification);

// "null:SIZE" or "ram:SIZE" (SIZE with KiB, MiB, GiB), as in the `params` key. The error says what is wrong with which
// part.
Result<std::unique_ptr<Store>> open_store(const std::string& specification);

}  // namespace xblk::store
