// One io_uring per queue: operations on one open file.
//
// submit() costs one system call per batch, reap() none: it looks at the completion ring. Descriptor of completion is
// the ring itself, which polls readable while it holds a completion; so there is no eventfd to write and to drain.
//
// Any one thread at a time, not always the same (see store.hpp), so nothing that ties the ring to a thread is used:
// neither IORING_SETUP_SINGLE_ISSUER nor a registered ring descriptor.
#pragma once

#include <liburing.h>
#include <sys/uio.h>

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "drivers/base/result.hpp"
#include "drivers/base/unique_fd.hpp"
#include "drivers/store/store.hpp"

namespace xblk::store {

// What a queue works on.
struct FileAccess {
  UniqueFd fd;
  bool readonly = false;
  bool discard = false;
  // Transfers that are no multiples of these go through an aligned copy. 1: the file takes anything.
  std::uint32_t memory_align = 1;
  std::uint32_t block_bytes = 1;
  const std::atomic<std::uint64_t>& capacity;  // sectors, as of now; outlives the queue
};

class FileQueue final : public Queue {
 public:
  static constexpr unsigned kInFlightMax = 256;  // at the kernel; more wait here. A ring of 8 pages has 256 slots.
  static constexpr unsigned kCopiesMax = 32;     // misaligned transfers in flight; bounds the memory of their copies

  static Result<std::unique_ptr<FileQueue>> open(FileAccess access);
  ~FileQueue() override;
  FileQueue(const FileQueue&) = delete;
  FileQueue& operator=(const FileQueue&) = delete;

  void submit(std::span<const Operation> batch) override;
  unsigned reap(std::span<Finished> into) override;
  [[nodiscard]] int completion_fd() const override { return ring_.ring_fd; }

 private:
  using AlignedBuffer = std::unique_ptr<std::byte, decltype(&std::free)>;

  // An operation at the kernel.
  struct Slot {
    Operation operation;
    std::uint64_t done = 0;  // bytes
    unsigned retries = 0;    // in a row
    int refused = 0;         // errno of what never reaches the file
    AlignedBuffer copy{nullptr, &std::free};
    std::vector<iovec> vectors;
  };

  explicit FileQueue(FileAccess access);
  Status start_ring();

  [[nodiscard]] bool must_copy(const Operation& operation) const;
  [[nodiscard]] int refusal(const Operation& operation) const;
  [[nodiscard]] bool can_start(const Operation& operation) const;
  void start(const Operation& operation);
  void start_waiting();
  void make_copy(Slot& slot);
  void prepare(std::uint32_t index);
  void prepare_transfer(Slot& slot, io_uring_sqe& entry);
  static void gather(Slot& slot);
  void enter();
  std::optional<int> settle(std::uint32_t index, int result);
  std::optional<int> transferred(Slot& slot, int result);
  void release(std::uint32_t index);

  FileAccess access_;
  io_uring ring_{};
  std::vector<Slot> slots_;
  std::vector<std::uint32_t> free_slots_;
  unsigned copies_ = 0;
  std::deque<Operation> waiting_;
};

}  // namespace xblk::store
