// A write log that survives its writer: records go to a device one after another, each to a place of its own, and what
// a flush has made durable is noted in memory that the parent shares. After the writer, or the host under it, is
// killed, every noted record must be in the store, whole.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "drivers/base/units.hpp"
#include "drivers/blkfront/block_device.hpp"

namespace xblk::scenarios {

inline constexpr Sectors kFlushLogSlot{16};  // a record's place; a record is 1 to 16 sectors long

class FlushLog {
 public:
  // For `records` places; `seed` makes lengths and contents.
  FlushLog(std::uint64_t seed, std::uint64_t records);

  // ---- the writer, a process forked after the construction ----

  // Writes and flushes until the device fails, or for ever; returns the errno value that it failed with.
  int write_until_failure(blkfront::BlockDevice& device);

  // ---- whoever looks afterwards ----

  [[nodiscard]] std::uint64_t durable() const { return shared_->durable.load(); }
  [[nodiscard]] std::uint64_t capacity() const { return records_; }
  [[nodiscard]] Bytes size() const { return to_bytes(Sectors(records_ * kFlushLogSlot.value())); }
  // The first durable record that is not what was written; durable() if there is none.
  [[nodiscard]] std::uint64_t first_damaged(const std::string& file) const;
  [[nodiscard]] std::uint64_t first_damaged(blkfront::BlockDevice& device) const;

 private:
  struct Shared {
    std::atomic<std::uint64_t> durable{0};  // records 0 .. durable - 1 were written before a flush that succeeded
  };
  struct Unmap {
    void operator()(Shared* shared) const;
  };

  [[nodiscard]] Sectors length(std::uint64_t record) const;
  void fill(std::uint64_t record, std::span<std::byte> into) const;
  [[nodiscard]] bool intact(std::uint64_t record, std::span<const std::byte> found) const;

  std::uint64_t seed_;
  std::uint64_t records_;
  std::unique_ptr<Shared, Unmap> shared_;
};

}  // namespace xblk::scenarios
