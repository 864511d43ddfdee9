// One fio job on a shared device: everything of the engine that needs no header of fio, so that it runs under
// sanitizers in an own harness. Used by one thread at a time, as fio does.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "drivers/base/result.hpp"
#include "drivers/base/units.hpp"
#include "drivers/blkfront/block_device.hpp"
#include "drivers/fio/registry.hpp"

namespace xblk::fio_engine {

// A backend that answers nothing for this long counts as hung: a benchmark must end, with an error.
inline constexpr Nanos kStallLimit = seconds(30);

class Job {
 public:
  static Result<std::unique_ptr<Job>> join(Registry& registry, const JobOptions& options);
  ~Job();
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  [[nodiscard]] blkfront::DeviceInfo info() const { return shared_.device().info(); }
  // `depth`: the most I/Os that will be outstanding.
  Status start(unsigned depth, Nanos stall_limit = kStallLimit);
  // Gives back channel, buffers and membership; the destructor does so too, but cannot tell of errors.
  Status finish();

  Result<std::byte*> allocate_buffers(Bytes size);
  void free_buffers();

  // Waits for room when ring or grant pool are full, and never gives the I/O back as busy: fio draws a new seed for a
  // requeued write, and its verification then fails on correct data (backend.c, io_queue_event and do_verify).
  Status submit(const blkfront::Io& io) {
    Status status = channel_->submit(io);
    if (!status && status.error().code == EAGAIN) [[unlikely]]
      status = submit_when_full(io);
    outstanding_ += status.has_value();
    return status;
  }
  void commit() { channel_->commit(); }
  // Waits for `min` completions, but at most the stall limit, and takes up to `max`; completion(i) holds them until the
  // next call. ETIMEDOUT: not even one arrived.
  Result<unsigned> reap(unsigned min, unsigned max);
  [[nodiscard]] const blkfront::Completion& completion(unsigned i) const { return events_[i]; }

  // The ramp time is over: what fio counts begins.
  Status begin_measuring() { return shared_.begin_measuring(); }

 private:
  Job(Registry& registry, Registry::Membership membership)
      : registry_(registry), shared_(*membership.device), number_(membership.number) {}
  Status submit_when_full(const blkfront::Io& io);
  Status make_room();
  unsigned take_stashed(unsigned max);
  [[nodiscard]] tl::unexpected<Error> stalled() const;

  Registry& registry_;
  SharedDevice& shared_;
  const unsigned number_;
  bool member_ = true;
  Nanos stall_limit_{};
  std::unique_ptr<blkfront::Channel> channel_;
  std::span<std::byte> buffers_;
  std::vector<blkfront::Completion> events_;  // of the last reap
  std::vector<blkfront::Completion> stash_;   // arrived while waiting for room; reap() delivers them first
  unsigned outstanding_ = 0;                  // submitted and not yet taken from the channel
};

}  // namespace xblk::fio_engine
