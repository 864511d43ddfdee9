#include "drivers/scenarios/workload.hpp"

#include <cstring>

#include "drivers/base/check.hpp"

namespace xblk::scenarios {
namespace {

// Every 8-byte word of a sector depends on the pattern and the sector number, so a shifted or foreign sector shows.
std::uint64_t word(std::uint64_t pattern, std::uint64_t sector, std::size_t index) {
  return pattern == 0 ? 0 : (pattern * 0x9e3779b97f4a7c15ULL) ^ (sector << 20) ^ index;
}

}  // namespace

Workload::Workload(blkfront::BlockDevice& device, blkfront::Channel& channel, Options options, std::uint64_t seed)
    : device_(device),
      channel_(channel),
      options_(options),
      random_(seed),
      slots_(options.depth),
      expected_(options.length.value()) {
  const std::size_t bytes = std::size_t{options.sectors_max} * kSectorSize;
  auto memory = device.allocate_buffers(Bytes(bytes * options.depth));
  XBLK_CHECK(memory.has_value(), "the guest has memory for the buffers");
  memory_ = *memory;
  for (std::size_t i = 0; i < slots_.size(); ++i) slots_[i].io.buffer = memory_.data() + i * bytes;
}

Workload::~Workload() {
  device_.free_buffers(memory_);
}

void Workload::turn() {
  for (Slot& slot : slots_) {
    if (!slot.busy && !draining_) submit(slot);
  }
  channel_.commit();
  std::array<blkfront::Completion, 32> completions;
  const unsigned n = channel_.reap(0, completions, Nanos(0));
  for (unsigned i = 0; i < n; ++i) complete(completions[i]);
}

blkfront::Io Workload::draw() {
  blkfront::Io io;
  if (random_.one_in(options_.flush_one_in)) {
    io.op = blkfront::IoOp::flush;
    return io;
  }
  io.count = Sectors(1 + random_.below(options_.sectors_max));
  io.sector = options_.first + Sectors(random_.below(options_.length.value() - io.count.value() + 1));
  const std::uint64_t dice = random_.below(30);
  io.op = dice < 14 ? blkfront::IoOp::read : dice < 28 ? blkfront::IoOp::write : blkfront::IoOp::discard;
  if (dice > 26 && (options_.barriers || options_.discards)) {
    const auto offered = device_.info().negotiated;
    if (io.op == blkfront::IoOp::discard) {
      draw_discard(io, offered);
    } else if (options_.barriers && offered.barrier) {
      io.op = blkfront::IoOp::barrier;
    }
  }
  return io;
}

// Whole extents inside the range that was drawn; a read where there are none.
void Workload::draw_discard(blkfront::Io& io, const blkfront::Negotiated& offered) {
  const std::uint64_t extent = offered.discard_granularity / kSectorSize;
  const std::uint64_t first = (io.sector.value() + extent - 1) / extent * extent;
  const std::uint64_t end = (io.sector + io.count).value() / extent * extent;
  if (!options_.discards || first >= end) {
    io.op = blkfront::IoOp::read;
    return;
  }
  io.sector = Sectors(first);
  io.count = Sectors(end - first);
  io.secure = offered.discard_secure && random_.one_in(2);
}

void Workload::submit(Slot& slot) {
  blkfront::Io io = draw();
  io.buffer = slot.io.buffer;
  if (io.op != blkfront::IoOp::flush && overlaps(io)) return;
  io.cookie = &slot;
  slot.io = io;
  if (io.op == blkfront::IoOp::write || io.op == blkfront::IoOp::barrier) {
    slot.pattern = next_pattern_++;
    fill(slot);
  } else if (io.op == blkfront::IoOp::read) {
    std::memset(io.buffer, 0xee, io.count.value() * kSectorSize);
  }
  const auto status = channel_.submit(io);
  if (status) {
    slot.busy = true;
    ++in_flight_;
  } else if (status.error().code == EOPNOTSUPP && io.op != blkfront::IoOp::read && io.op != blkfront::IoOp::write) {
    ++unsupported_;
  } else if (status.error().code != EAGAIN) {
    ++errors_;
    last_error_ = status.error().code;
  }
}

bool Workload::overlaps(const blkfront::Io& io) const {
  for (const Slot& other : slots_) {
    if (other.busy && other.io.op != blkfront::IoOp::flush && io.sector < other.io.sector + other.io.count &&
        other.io.sector < io.sector + io.count) {
      return true;
    }
  }
  return false;
}

void Workload::complete(const blkfront::Completion& completion) {
  auto& slot = *static_cast<Slot*>(completion.cookie);
  XBLK_CHECK(slot.busy, "one completion per I/O");
  slot.busy = false;
  --in_flight_;
  ++completed_;
  if (completion.error != 0) {
    ++errors_;
    last_error_ = completion.error;
  }
  // Of a flush, whose count is 0, nothing.
  const std::uint64_t first = slot.io.op == blkfront::IoOp::flush ? 0 : (slot.io.sector - options_.first).value();
  for (std::uint64_t s = 0; completion.error == 0 && s < slot.io.count.value(); ++s) {
    if (slot.io.op == blkfront::IoOp::write || slot.io.op == blkfront::IoOp::barrier) {
      expected_[first + s] = slot.pattern;
    }
    if (slot.io.op == blkfront::IoOp::discard) expected_[first + s] = 0;
  }
  if (completion.error == 0 && slot.io.op == blkfront::IoOp::read) verify(slot);
  trace_ =
      (trace_ ^ (slot.io.sector.value() * 31 + slot.io.count.value() * 7 + static_cast<std::uint64_t>(slot.io.op))) *
      0x100000001b3ULL;
}

void Workload::fill(const Slot& slot) {
  for (std::uint64_t s = 0; s < slot.io.count.value(); ++s) {
    for (std::size_t i = 0; i < kSectorSize / 8; ++i) {
      const std::uint64_t value = word(slot.pattern, slot.io.sector.value() + s, i);
      std::memcpy(slot.io.buffer + s * kSectorSize + i * 8, &value, 8);
    }
  }
}

void Workload::verify(const Slot& slot) {
  const std::uint64_t first = (slot.io.sector - options_.first).value();
  for (std::uint64_t s = 0; s < slot.io.count.value(); ++s) {
    for (std::size_t i = 0; i < kSectorSize / 8; ++i) {
      std::uint64_t value = 0;
      std::memcpy(&value, slot.io.buffer + s * kSectorSize + i * 8, 8);
      if (value != word(expected_[first + s], slot.io.sector.value() + s, i)) {
        ++mismatches_;
        return;
      }
    }
  }
}

}  // namespace xblk::scenarios
