// A block device in memory for the engine's own tests: the interface of the frontend, a worker thread as the backend.
// It completes in seeded random order, has small rings, and fails what it is told to fail.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "drivers/base/prng.hpp"
#include "drivers/base/statistics_file.hpp"
#include "drivers/blkfront/block_device.hpp"

namespace xblk::fio_engine {

struct MemoryDeviceOptions {
  Sectors capacity{};
  unsigned queues = 1;
  unsigned ring_entries = 32;  // I/Os of one queue that may be outstanding
  std::uint64_t seed = 1;      // of the completion order
  bool flush = true;
  bool discard = true;
  std::set<std::uint64_t> bad_sectors;  // an I/O that touches one fails with EIO
  bool fail_flush = false;
  bool stalled = false;         // the backend answers nothing
  std::string statistics_path;  // empty: none
};

class MemoryDevice final : public blkfront::BlockDevice {
 public:
  static Result<std::unique_ptr<MemoryDevice>> create(MemoryDeviceOptions options);
  ~MemoryDevice() override;

  [[nodiscard]] blkfront::DeviceInfo info() const override;
  Result<std::span<std::byte>> allocate_buffers(Bytes size) override;
  void free_buffers(std::span<std::byte> block) override;
  Result<std::unique_ptr<blkfront::Channel>> open_channel(unsigned number) override;
  [[nodiscard]] std::string statistics_path() const override { return options_.statistics_path; }
  [[nodiscard]] std::string backend_statistics_path() const override { return {}; }
  Status disconnect() override;

  [[nodiscard]] unsigned channels_opened(unsigned queue) const { return queues_[queue].channels_opened; }
  [[nodiscard]] std::size_t buffers_allocated() const { return buffers_allocated_; }
  [[nodiscard]] QueueSample counters(unsigned queue) { return sample(statistics_.queues()[queue]); }

 private:
  class MemoryChannel;
  struct Pending {
    blkfront::Io io;
    MemoryChannel* owner = nullptr;
  };
  struct Queue {
    std::vector<Pending> staged;     // submitted, not committed
    std::vector<Pending> committed;  // the worker's
    unsigned outstanding = 0;
    unsigned channels_opened = 0;
  };

  explicit MemoryDevice(MemoryDeviceOptions options, StatisticsFile statistics);
  void work();
  void complete_some(Queue& queue);
  int execute(const blkfront::Io& io);
  Status validate(const blkfront::Io& io) const;

  const MemoryDeviceOptions options_;
  StatisticsFile statistics_;
  Prng prng_;
  std::vector<std::byte> disk_;
  std::mutex mutex_;  // everything below, and the channels' completions
  std::condition_variable worker_wakes_;
  std::condition_variable completions_;
  std::vector<Queue> queues_;
  bool stop_ = false;
  std::atomic<std::size_t> buffers_allocated_{0};
  std::thread worker_;
};

}  // namespace xblk::fio_engine
