// One virtqueue of a vhost-user-blk device, as a channel of the block device: requests in chains of fixed descriptors,
// completions by polling the used ring or by waiting for the call eventfd.
#pragma once

#include <linux/virtio_blk.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "ci/perf/vhost_user_blk/split_queue.hpp"
#include "drivers/base/result.hpp"
#include "drivers/base/units.hpp"
#include "drivers/blkfront/block_device.hpp"
#include "drivers/env/real/real_env.hpp"

namespace xblk::vhost_user {

// What the server reads and writes of a request besides its data. A cache line of its own: the server's write of one
// status does not disturb the driver's next header.
struct alignas(64) RequestBlock {
  virtio_blk_outhdr header;
  virtio_blk_discard_write_zeroes range;
  std::uint8_t status;
};

// A chain is header, data, status, always in the same three descriptors; a flush links header to status.
inline constexpr std::uint16_t kDescriptorsPerRequest = 3;
inline constexpr QueueLayout kQueueLayout{256};
inline constexpr std::size_t kRequestsPerQueue = kQueueLayout.size / kDescriptorsPerRequest;

constexpr std::size_t queue_memory_bytes() {
  const std::size_t blocks = kRequestsPerQueue * sizeof(RequestBlock);
  return kQueueLayout.bytes() + (blocks + kPageSize - 1) / kPageSize * kPageSize;
}

struct QueueOptions {
  bool event_index = false;
  bool poll = true;
  int control_socket = -1;  // hangs up when the server dies
};

// Used by one thread at a time.
class Queue {
 public:
  // `memory`: queue_memory_bytes() of zeroed shared memory, at the address by which the server knows it.
  Queue(std::byte* memory, env::RealDoorbell kick, env::RealDoorbell call, const QueueOptions& options);

  [[nodiscard]] const SplitQueue& ring() const { return ring_; }
  [[nodiscard]] int kick_fd() const { return kick_.waitable(); }
  [[nodiscard]] int call_fd() const { return call_.waitable(); }

  // As blkfront::Channel.
  Status submit(const blkfront::Io& io);
  void commit();
  unsigned reap(unsigned min, std::span<blkfront::Completion> into, Nanos timeout);

 private:
  struct Slot {
    void* cookie = nullptr;
    bool in_flight = false;
  };

  void prepare_chain(std::uint16_t request);
  unsigned take(std::span<blkfront::Completion> into);
  unsigned take_failed(std::span<blkfront::Completion> into);
  bool spin();
  void wait_for_event(Instant deadline);
  void look_after_server(Nanos timeout);

  env::RealEnv env_;
  SplitQueue ring_;
  RequestBlock* blocks_;
  env::RealDoorbell kick_;
  env::RealDoorbell call_;
  const QueueOptions options_;
  std::array<Slot, kRequestsPerQueue> slots_{};
  std::vector<std::uint16_t> free_;  // slots; the last one given back is the first to go, its lines are warm
  unsigned in_flight_ = 0;           // slots
  int failure_ = 0;                  // errno: the server is gone, or lies; what is in flight fails with it
  Instant looked_{};                 // after the server
};

}  // namespace xblk::vhost_user
