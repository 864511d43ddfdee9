#include "drivers/fio/memory_device.hpp"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>

#include "drivers/base/check.hpp"

namespace xblk::fio_engine {

class MemoryDevice::MemoryChannel final : public blkfront::Channel {
 public:
  MemoryChannel(MemoryDevice& device, Queue& queue, QueueCounters& counters)
      : device_(device), queue_(queue), counters_(counters) {}

  Status submit(const blkfront::Io& io) override {
    if (auto status = device_.validate(io); !status) return status;
    const std::lock_guard lock(device_.mutex_);
    if (queue_.outstanding == device_.options_.ring_entries) return fail(EAGAIN, "ring full");
    ++queue_.outstanding;
    queue_.staged.push_back({io, this});
    counters_.add(Counter::ios);
    return {};
  }

  void commit() override {
    const std::lock_guard lock(device_.mutex_);
    if (queue_.staged.empty()) return;
    counters_.add(Counter::batches);
    queue_.committed.insert(queue_.committed.end(), queue_.staged.begin(), queue_.staged.end());
    queue_.staged.clear();
    device_.worker_wakes_.notify_one();
  }

  unsigned reap(unsigned min, std::span<blkfront::Completion> into, Nanos timeout) override {
    std::unique_lock lock(device_.mutex_);
    if (min > 0) {
      device_.completions_.wait_for(lock, std::chrono::nanoseconds(timeout.value()),
                                    [&] { return done_.size() >= min; });
    }
    unsigned count = 0;
    for (; count < into.size() && !done_.empty(); ++count) {
      into[count] = done_.front();
      done_.pop_front();
    }
    return count;
  }

  std::deque<blkfront::Completion> done_;  // under the device's mutex

 private:
  MemoryDevice& device_;
  Queue& queue_;
  QueueCounters& counters_;
};

Result<std::unique_ptr<MemoryDevice>> MemoryDevice::create(MemoryDeviceOptions options) {
  StatisticsFile statistics = StatisticsFile::anonymous(End::front, options.queues);
  if (!options.statistics_path.empty()) {
    auto file = StatisticsFile::create(options.statistics_path, End::front, 1, 51712, options.queues);
    if (!file) return tl::unexpected(file.error());
    statistics = std::move(*file);
  }
  statistics.header().queues = options.queues;
  statistics.header().generation = 1;
  return std::unique_ptr<MemoryDevice>(new MemoryDevice(std::move(options), std::move(statistics)));
}

MemoryDevice::MemoryDevice(MemoryDeviceOptions options, StatisticsFile statistics)
    : options_(std::move(options)),
      statistics_(std::move(statistics)),
      prng_(options_.seed),
      disk_(to_bytes(options_.capacity).value()),
      queues_(options_.queues),
      worker_([this] { work(); }) {}

MemoryDevice::~MemoryDevice() {
  static_cast<void>(disconnect());
  XBLK_CHECK(buffers_allocated_ == 0, "every block of buffers is given back before the device goes");
}

Status MemoryDevice::disconnect() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
    worker_wakes_.notify_one();
  }
  if (worker_.joinable()) worker_.join();
  return {};
}

blkfront::DeviceInfo MemoryDevice::info() const {
  blkfront::DeviceInfo info;
  info.capacity = options_.capacity;
  info.negotiated.queues = static_cast<std::uint16_t>(options_.queues);
  info.negotiated.flush = options_.flush;
  info.negotiated.discard = options_.discard;
  return info;
}

Result<std::span<std::byte>> MemoryDevice::allocate_buffers(Bytes size) {
  const std::size_t rounded = (size.value() + kPageSize - 1) / kPageSize * kPageSize;
  void* block = std::aligned_alloc(kPageSize, rounded);
  if (block == nullptr) return fail_errno("allocate buffers");
  ++buffers_allocated_;
  return std::span(static_cast<std::byte*>(block), rounded);
}

void MemoryDevice::free_buffers(std::span<std::byte> block) {
  --buffers_allocated_;
  std::free(block.data());
}

Result<std::unique_ptr<blkfront::Channel>> MemoryDevice::open_channel(unsigned number) {
  const std::lock_guard lock(mutex_);
  const unsigned queue = number % options_.queues;
  ++queues_[queue].channels_opened;
  return std::make_unique<MemoryChannel>(*this, queues_[queue], statistics_.queues()[queue]);
}

Status MemoryDevice::validate(const blkfront::Io& io) const {
  if (io.op == blkfront::IoOp::flush && !options_.flush) return fail(EOPNOTSUPP, "no flush");
  if (io.op == blkfront::IoOp::discard && !options_.discard) return fail(EOPNOTSUPP, "no discard");
  if (io.sector > options_.capacity || io.count > options_.capacity - io.sector) return fail(EINVAL, "out of range");
  return {};
}

void MemoryDevice::work() {
  std::unique_lock lock(mutex_);
  const auto has_work = [this] {
    for (const Queue& queue : queues_) {
      if (!queue.committed.empty()) return true;
    }
    return false;
  };
  while (true) {
    worker_wakes_.wait(lock, [&] { return stop_ || (!options_.stalled && has_work()); });
    if (stop_) return;  // whoever submitted and did not wait may be gone
    for (Queue& queue : queues_) complete_some(queue);
    completions_.notify_all();
  }
}

// A random half of what is there, in random order: completions overtake each other.
void MemoryDevice::complete_some(Queue& queue) {
  for (std::size_t rounds = (queue.committed.size() + 1) / 2; rounds > 0; --rounds) {
    const std::size_t chosen = prng_.below(queue.committed.size());
    std::swap(queue.committed[chosen], queue.committed.back());
    const Pending pending = queue.committed.back();
    queue.committed.pop_back();
    --queue.outstanding;
    pending.owner->done_.push_back({pending.io.cookie, execute(pending.io)});
  }
}

int MemoryDevice::execute(const blkfront::Io& io) {
  if (io.op == blkfront::IoOp::flush) return options_.fail_flush ? EIO : 0;
  const std::uint64_t first = io.sector.value();
  const auto bad = options_.bad_sectors.lower_bound(first);
  if (bad != options_.bad_sectors.end() && *bad < first + io.count.value()) return EIO;
  std::byte* const at = disk_.data() + to_bytes(io.sector).value();
  const std::size_t size = to_bytes(io.count).value();
  switch (io.op) {
    case blkfront::IoOp::read:
      std::memcpy(io.buffer, at, size);
      break;
    case blkfront::IoOp::write:
    case blkfront::IoOp::barrier:  // everything before it has been executed
      std::copy_n(io.buffer, size, at);
      break;
    case blkfront::IoOp::discard:
      std::memset(at, 0, size);
      break;
    case blkfront::IoOp::flush:
      break;
  }
  return 0;
}

}  // namespace xblk::fio_engine
