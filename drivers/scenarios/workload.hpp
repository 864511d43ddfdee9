// A verifying workload for scenarios: random reads, writes, barriers, flushes and discards on one channel, never two at
// once on the same sectors, each read compared with what must be there.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "drivers/base/prng.hpp"
#include "drivers/blkfront/block_device.hpp"

namespace xblk::scenarios {

class Workload {
 public:
  struct Options {
    unsigned depth = 8;
    std::uint32_t sectors_max = 64;  // per I/O
    Sectors first{};                 // the part of the device that is this workload's own
    Sectors length{4096};
    // Each of them only while the device offers it.
    bool discards = true;
    bool barriers = true;
    unsigned flush_one_in = 16;  // I/Os
  };

  Workload(blkfront::BlockDevice& device, blkfront::Channel& channel, Options options, std::uint64_t seed);
  ~Workload();

  // Submits what fits, reaps what is there. Call until finished(ios).
  void turn();
  [[nodiscard]] std::uint64_t completed() const { return completed_; }
  [[nodiscard]] unsigned in_flight() const { return in_flight_; }
  // No more submissions; turn() only reaps.
  void drain() { draining_ = true; }

  [[nodiscard]] std::uint64_t mismatches() const { return mismatches_; }
  [[nodiscard]] std::uint64_t errors() const { return errors_; }
  [[nodiscard]] int last_error() const { return last_error_; }  // errno value of the last of them; 0: none
  // Flushes and discards that the device refused, because the backend does not offer them.
  [[nodiscard]] std::uint64_t unsupported() const { return unsupported_; }
  // A digest of the order and content of everything that completed: equal for equal seeds.
  [[nodiscard]] std::uint64_t trace() const { return trace_; }

 private:
  struct Slot {
    blkfront::Io io;
    bool busy = false;
    std::uint64_t pattern = 0;
  };

  void submit(Slot& slot);
  [[nodiscard]] blkfront::Io draw();
  void draw_discard(blkfront::Io& io, const blkfront::Negotiated& offered);
  void complete(const blkfront::Completion& completion);
  [[nodiscard]] bool overlaps(const blkfront::Io& io) const;
  void fill(const Slot& slot);
  void verify(const Slot& slot);

  blkfront::BlockDevice& device_;
  blkfront::Channel& channel_;
  Options options_;
  Prng random_;
  std::span<std::byte> memory_;
  std::vector<Slot> slots_;
  std::vector<std::uint64_t> expected_;  // pattern of each sector; 0: zeros
  unsigned in_flight_ = 0;
  bool draining_ = false;
  std::uint64_t next_pattern_ = 1;
  std::uint64_t completed_ = 0;
  std::uint64_t mismatches_ = 0;
  std::uint64_t errors_ = 0;
  int last_error_ = 0;
  std::uint64_t unsupported_ = 0;
  std::uint64_t trace_ = 0;
};

}  // namespace xblk::scenarios
