// The backing-store port: where blocks live. One virtual call per batch, so its cost is spread over the batch.
//
// A Store is shared and knows its geometry; each ring opens one Queue of its own, used by one thread at a time, so that
// no lock stands between rings (architecture, "the store port"). Not always the same thread: the control thread drains
// a queue after its worker has let go of it.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "drivers/base/result.hpp"
#include "drivers/base/units.hpp"
#include "drivers/store/specification.hpp"

namespace xblk::store {

enum class Op : std::uint8_t { read, write, flush, discard };

// A stretch of the backend's memory; whole sectors.
struct Piece {
  std::byte* address = nullptr;
  std::uint32_t bytes = 0;
};

// `pieces` must stay valid until the operation has been reaped.
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
  virtual ~Queue() = default;  // waits for the operations in flight; their results are lost
  // Takes the whole batch. Never blocks; a failure is reported by reap(). A range beyond the store's end fails with
  // EIO: the caller checks it too, but against a size that a live resize may have made smaller.
  virtual void submit(std::span<const Operation> batch) = 0;
  // Finished operations in any order; returns how many were stored.
  virtual unsigned reap(std::span<Finished> into) = 0;
  // A descriptor that polls readable when reap() has something; -1 for stores that finish inside submit().
  [[nodiscard]] virtual int completion_fd() const { return -1; }
};

struct Geometry {
  Sectors capacity{};
  std::uint32_t sector_size = kSectorSize;  // bytes; what operations are multiples of
  bool readonly = false;                    // writes and discards fail
  bool asynchronous = false;                // operations finish after submit(): queues have a completion_fd()
  bool flush = true;                        // has a volatile cache, or can at least order a flush
  bool discard = true;
  bool secure_discard = false;
  std::uint32_t discard_granularity = kSectorSize;  // bytes
  std::uint32_t discard_alignment = 0;              // bytes
};

class Store {
 public:
  virtual ~Store() = default;  // its queues are gone by then
  // Any thread.
  [[nodiscard]] virtual Geometry geometry() const = 0;
  [[nodiscard]] virtual Result<std::unique_ptr<Queue>> open_queue() = 0;
  // Live, with queues open and busy; one caller at a time. What lies beyond a smaller size is lost, what lies beyond
  // the old one reads as zeros. Sectors(0), where the specification names no size: the size that the file has now.
  virtual Status resize(Sectors capacity) = 0;
  // One line for a person: which store, and what it made of it ("buffered: tmpfs takes no O_DIRECT").
  [[nodiscard]] virtual std::string description() const = 0;
};

// As in the `params` key; the grammar is in specification.hpp.
Result<std::unique_ptr<Store>> open_store(const std::string& specification);

}  // namespace xblk::store
