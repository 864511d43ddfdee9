#include "drivers/scenarios/flush_log.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <fstream>
#include <vector>

#include "drivers/base/check.hpp"
#include "drivers/base/prng.hpp"

namespace xblk::scenarios {
namespace {

constexpr std::size_t kSlotBytes = kFlushLogSlot.value() * kSectorSize;
constexpr unsigned kDepth = 8;        // writes in flight
constexpr unsigned kFlushEvery = 12;  // records

// The writer's I/O: writes in flight, and at most one flush.
class Writer {
 public:
  struct Slot {
    std::span<std::byte> buffer;
    std::uint64_t record = 0;
    bool busy = false;
    bool flush = false;
  };

  Writer(blkfront::BlockDevice& device, std::uint64_t records)
      : channel_(device.open_channel(0).value()), written_(records) {
    const auto memory = device.allocate_buffers(Bytes(kDepth * kSlotBytes)).value();
    for (unsigned i = 0; i < kDepth; ++i) slots_[i].buffer = memory.subspan(i * kSlotBytes, kSlotBytes);
    slots_[kDepth].flush = true;
  }

  [[nodiscard]] Slot* free_slot() {
    const auto found = std::find_if(slots_.begin(), slots_.begin() + kDepth, [](const Slot& s) { return !s.busy; });
    return found == slots_.begin() + kDepth ? nullptr : &*found;
  }
  [[nodiscard]] bool flushing() const { return slots_[kDepth].busy; }
  // Records 0 to this one are written, without a gap.
  [[nodiscard]] std::uint64_t prefix() const { return prefix_; }

  // EAGAIN: come again; 0: it is on its way.
  int write(Slot& slot, std::uint64_t record, Sectors length) {
    slot.record = record;
    return submit(slot,
                  {blkfront::IoOp::write, Sectors(record * kFlushLogSlot.value()), length, slot.buffer.data(), &slot});
  }
  int flush() {
    slots_[kDepth].record = prefix_;
    return submit(slots_[kDepth], {blkfront::IoOp::flush, Sectors(0), Sectors(0), nullptr, &slots_[kDepth]});
  }

  // Returns the first error; `durable` grows when a flush has succeeded.
  int reap(std::atomic<std::uint64_t>& durable) {
    channel_->commit();
    std::array<blkfront::Completion, kDepth + 1> completions;
    const unsigned n = channel_->reap(1, completions, millis(100));
    for (unsigned i = 0; i < n; ++i) {
      auto& slot = *static_cast<Slot*>(completions[i].cookie);
      slot.busy = false;
      if (completions[i].error != 0) return completions[i].error;
      if (slot.flush) {
        durable.store(slot.record);
      } else {
        written_[slot.record] = true;
        while (prefix_ < written_.size() && written_[prefix_]) ++prefix_;
      }
    }
    return 0;
  }

 private:
  int submit(Slot& slot, const blkfront::Io& io) {
    const auto submitted = channel_->submit(io);
    if (!submitted) return submitted.error().code;
    slot.busy = true;
    return 0;
  }

  std::unique_ptr<blkfront::Channel> channel_;
  std::array<Slot, kDepth + 1> slots_;
  std::vector<bool> written_;
  std::uint64_t prefix_ = 0;
};

}  // namespace

FlushLog::FlushLog(std::uint64_t seed, std::uint64_t records) : seed_(seed), records_(records) {
  void* const page = ::mmap(nullptr, kPageSize, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  XBLK_CHECK(page != MAP_FAILED, "a page to share with the writer");
  shared_.reset(new (page) Shared);
}

void FlushLog::Unmap::operator()(Shared* shared) const {
  ::munmap(shared, kPageSize);
}

int FlushLog::write_until_failure(blkfront::BlockDevice& device) {
  Writer writer(device, records_);
  std::uint64_t next = 0;
  std::uint64_t flushed_at = 0;
  for (;;) {
    int error = 0;
    for (auto* slot = writer.free_slot(); slot != nullptr && next < records_ && error == 0; slot = writer.free_slot()) {
      fill(next, slot->buffer);
      error = writer.write(*slot, next, length(next));
      if (error == 0) ++next;
    }
    const bool due = writer.prefix() >= flushed_at + kFlushEvery || next == records_;
    if (error == 0 && due && !writer.flushing()) {
      flushed_at = writer.prefix();
      error = writer.flush();
    }
    if (error == 0 || error == EAGAIN) error = writer.reap(shared_->durable);
    if (error != 0) return error;
  }
}

Sectors FlushLog::length(std::uint64_t record) const {
  return Sectors(1 + Prng(seed_ ^ (record << 8)).below(kFlushLogSlot.value()));
}

void FlushLog::fill(std::uint64_t record, std::span<std::byte> into) const {
  Prng content(seed_ ^ (record << 8) ^ 1);
  for (std::size_t i = 0; i < to_bytes(length(record)).value(); i += 8) {
    const std::uint64_t word = content.next();
    std::memcpy(into.data() + i, &word, 8);
  }
}

bool FlushLog::intact(std::uint64_t record, std::span<const std::byte> found) const {
  std::array<std::byte, kSlotBytes> expected;
  fill(record, expected);
  return std::memcmp(expected.data(), found.data(), to_bytes(length(record)).value()) == 0;
}

std::uint64_t FlushLog::first_damaged(const std::string& file) const {
  std::ifstream in(file, std::ios::binary);
  std::array<std::byte, kSlotBytes> found;
  for (std::uint64_t record = 0; record < durable(); ++record) {
    in.read(reinterpret_cast<char*>(found.data()), kSlotBytes);
    if (!in || !intact(record, found)) return record;
  }
  return durable();
}

std::uint64_t FlushLog::first_damaged(blkfront::BlockDevice& device) const {
  auto channel = device.open_channel(0).value();
  const auto buffer = device.allocate_buffers(Bytes(kSlotBytes)).value();
  std::uint64_t record = 0;
  for (; record < durable(); ++record) {
    const Sectors place(record * kFlushLogSlot.value());
    blkfront::Completion completion;
    const bool read =
        channel->submit({blkfront::IoOp::read, place, length(record), buffer.data(), nullptr}).has_value();
    channel->commit();
    if (!read || channel->reap(1, {&completion, 1}, seconds(20)) != 1 || completion.error != 0) break;
    if (!intact(record, buffer)) break;
  }
  device.free_buffers(buffer);
  return record;
}

}  // namespace xblk::scenarios
