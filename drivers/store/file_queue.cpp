#include "drivers/store/file_queue.hpp"

#include <fcntl.h>
#include <limits.h>
#include <linux/falloc.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include <fmt/format.h>

#include "drivers/base/check.hpp"
#include "drivers/store/range.hpp"

namespace xblk::store {
namespace {

constexpr int kRegisteredFile = 0;     // index; saves taking and dropping a reference per operation
constexpr unsigned kRetriesMax = 100;  // then the kernel's EAGAIN is the answer
constexpr unsigned kEnterTries = 100;  // a kernel out of memory is asked again later

bool moves_data(Op op) {
  return op == Op::read || op == Op::write;
}

std::uint64_t length(const Operation& operation) {
  return to_bytes(operation.count).value();
}

bool try_again(int error) {
  return error == EAGAIN || error == EINTR;
}

void copy_out(const Operation& operation, const std::byte* from) {
  for (const Piece& piece : operation.pieces) {
    std::memcpy(piece.address, from, piece.bytes);
    from += piece.bytes;
  }
}

void copy_in(std::byte* to, const Operation& operation) {
  for (const Piece& piece : operation.pieces) {
    std::memcpy(to, piece.address, piece.bytes);
    to += piece.bytes;
  }
}

std::string why_no_ring(int error) {
  switch (error) {
    case ENOSYS:
      return "io_uring: this kernel has none; file stores need it";
    case EPERM:
      return "io_uring: not permitted here; see sysctl kernel.io_uring_disabled and the container's seccomp filter";
    default:
      return fmt::format("io_uring: {}", std::strerror(error));
  }
}

}  // namespace

Result<std::unique_ptr<FileQueue>> FileQueue::open(FileAccess access) {
  std::unique_ptr<FileQueue> queue(new FileQueue(std::move(access)));
  if (auto started = queue->start_ring(); !started) return tl::unexpected(started.error());
  return queue;
}

FileQueue::FileQueue(FileAccess access) : access_(std::move(access)), slots_(kInFlightMax) {
  ring_.ring_fd = -1;
  for (std::uint32_t i = kInFlightMax; i-- > 0;) free_slots_.push_back(i);
}

Status FileQueue::start_ring() {
  // As many submissions as slots, and the kernel makes twice as many completions: neither ring can overflow.
  if (const int error = io_uring_queue_init(kInFlightMax, &ring_, 0); error != 0) {
    ring_.ring_fd = -1;
    return fail(-error, why_no_ring(-error));
  }
  const int fd = access_.fd.get();
  if (const int error = io_uring_register_files(&ring_, &fd, 1); error != 0)
    return fail(-error, fmt::format("io_uring: register the file: {}", std::strerror(-error)));
  access_.fd.reset();  // the ring holds it
  return {};
}

// The kernel reads and writes the callers' memory until the last operation has ended.
FileQueue::~FileQueue() {
  if (ring_.ring_fd < 0) return;
  waiting_.clear();
  while (free_slots_.size() < slots_.size()) {
    io_uring_submit_and_wait(&ring_, 1);
    io_uring_cqe* completion = nullptr;
    while (io_uring_peek_cqe(&ring_, &completion) == 0) {
      release(static_cast<std::uint32_t>(completion->user_data));
      io_uring_cqe_seen(&ring_, completion);
    }
  }
  io_uring_queue_exit(&ring_);
}

void FileQueue::submit(std::span<const Operation> batch) {
  for (const Operation& operation : batch) {
    if (waiting_.empty() && can_start(operation)) {
      start(operation);
    } else {
      waiting_.push_back(operation);
    }
  }
  enter();
}

unsigned FileQueue::reap(std::span<Finished> into) {
  std::array<io_uring_cqe*, 64> completions;
  const auto limit = static_cast<unsigned>(std::min(into.size(), completions.size()));
  const unsigned found = io_uring_peek_batch_cqe(&ring_, completions.data(), limit);
  unsigned n = 0;
  for (unsigned i = 0; i < found; ++i) {
    const auto index = static_cast<std::uint32_t>(completions[i]->user_data);
    const auto error = settle(index, completions[i]->res);
    if (!error) continue;
    into[n++] = {slots_[index].operation.cookie, *error};
    release(index);
  }
  io_uring_cq_advance(&ring_, found);
  start_waiting();
  enter();
  return n;
}

// ---- what is started, and when ----

bool FileQueue::must_copy(const Operation& operation) const {
  if (!moves_data(operation.op)) return false;
  return std::any_of(operation.pieces.begin(), operation.pieces.end(), [this](const Piece& piece) {
    return reinterpret_cast<std::uintptr_t>(piece.address) % access_.memory_align != 0 ||
           piece.bytes % access_.block_bytes != 0;
  });
}

int FileQueue::refusal(const Operation& operation) const {
  if (!within(operation, Sectors(access_.capacity.load(std::memory_order_relaxed)))) return EIO;
  if (operation.op == Op::discard && (!access_.discard || operation.secure)) return EOPNOTSUPP;
  if (operation.op == Op::write && access_.readonly) return EROFS;
  return 0;
}

bool FileQueue::can_start(const Operation& operation) const {
  return !free_slots_.empty() && (copies_ < kCopiesMax || !must_copy(operation));
}

void FileQueue::start(const Operation& operation) {
  const std::uint32_t index = free_slots_.back();
  free_slots_.pop_back();
  Slot& slot = slots_[index];
  slot.operation = operation;
  slot.done = 0;
  slot.retries = 0;
  slot.refused = refusal(operation);
  if (slot.refused == 0 && must_copy(operation)) make_copy(slot);
  prepare(index);
}

void FileQueue::start_waiting() {
  while (!waiting_.empty() && can_start(waiting_.front())) {
    start(waiting_.front());
    waiting_.pop_front();
  }
}

void FileQueue::make_copy(Slot& slot) {
  const std::size_t alignment = std::max<std::size_t>(access_.memory_align, kPageSize);
  const std::size_t bytes = (length(slot.operation) + alignment - 1) / alignment * alignment;
  slot.copy.reset(static_cast<std::byte*>(std::aligned_alloc(alignment, bytes)));
  if (slot.copy == nullptr) {
    slot.refused = ENOMEM;
    return;
  }
  ++copies_;
  if (slot.operation.op == Op::write) copy_in(slot.copy.get(), slot.operation);
}

// ---- at the kernel ----

void FileQueue::prepare(std::uint32_t index) {
  Slot& slot = slots_[index];
  io_uring_sqe* entry = io_uring_get_sqe(&ring_);
  XBLK_CHECK(entry != nullptr, "the submission ring has an entry for every slot");
  const Operation& operation = slot.operation;
  if (slot.refused != 0 || (operation.op != Op::flush && operation.count == Sectors(0))) {
    io_uring_prep_nop(entry);  // so that its answer, too, comes through the ring and its descriptor
  } else if (operation.op == Op::flush) {
    // Covers every write that was completed before: those are in the file, or in the device's cache.
    io_uring_prep_fsync(entry, kRegisteredFile, IORING_FSYNC_DATASYNC);
    entry->flags |= IOSQE_FIXED_FILE;
  } else if (operation.op == Op::discard) {
    io_uring_prep_fallocate(entry, kRegisteredFile, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                            static_cast<off_t>(to_bytes(operation.sector).value()),
                            static_cast<off_t>(length(operation)));
    entry->flags |= IOSQE_FIXED_FILE;
  } else {
    prepare_transfer(slot, *entry);
    entry->flags |= IOSQE_FIXED_FILE;
  }
  entry->user_data = index;
}

void FileQueue::prepare_transfer(Slot& slot, io_uring_sqe& entry) {
  gather(slot);
  const std::uint64_t offset = to_bytes(slot.operation.sector).value() + slot.done;
  const auto vectors = static_cast<unsigned>(slot.vectors.size());
  const iovec& first = slot.vectors.front();
  const bool read = slot.operation.op == Op::read;
  // One stretch needs no vector, which the kernel would have to fetch.
  if (vectors == 1 && read) {
    io_uring_prep_read(&entry, kRegisteredFile, first.iov_base, static_cast<unsigned>(first.iov_len), offset);
  } else if (vectors == 1) {
    io_uring_prep_write(&entry, kRegisteredFile, first.iov_base, static_cast<unsigned>(first.iov_len), offset);
  } else if (read) {
    io_uring_prep_readv(&entry, kRegisteredFile, slot.vectors.data(), vectors, offset);
  } else {
    io_uring_prep_writev(&entry, kRegisteredFile, slot.vectors.data(), vectors, offset);
  }
}

// What is left to transfer; neighbours in memory become one stretch. More than IOV_MAX of them end as a short transfer.
void FileQueue::gather(Slot& slot) {
  slot.vectors.clear();
  if (slot.copy != nullptr) {
    slot.vectors.push_back({slot.copy.get() + slot.done, length(slot.operation) - slot.done});
    return;
  }
  std::uint64_t skip = slot.done;
  for (const Piece& piece : slot.operation.pieces) {
    const std::uint64_t skipped = std::min<std::uint64_t>(skip, piece.bytes);
    skip -= skipped;
    if (skipped == piece.bytes) continue;
    std::byte* const address = piece.address + skipped;
    const std::size_t bytes = piece.bytes - skipped;
    if (!slot.vectors.empty()) {
      iovec& last = slot.vectors.back();
      if (static_cast<std::byte*>(last.iov_base) + last.iov_len == address) {
        last.iov_len += bytes;
        continue;
      }
    }
    if (slot.vectors.size() == IOV_MAX) return;
    slot.vectors.push_back({address, bytes});
  }
}

// Without memory for a request the kernel takes none; those stay in the ring until the next submit or reap.
void FileQueue::enter() {
  for (unsigned tries = 0; tries < kEnterTries && io_uring_sq_ready(&ring_) > 0; ++tries) io_uring_submit(&ring_);
}

// ---- back from the kernel ----

// The operation's errno; nothing: it goes on.
std::optional<int> FileQueue::settle(std::uint32_t index, int result) {
  Slot& slot = slots_[index];
  if (slot.refused != 0) return slot.refused;
  if (result < 0) {
    if (!try_again(-result) || ++slot.retries > kRetriesMax) return -result;
    prepare(index);
    return std::nullopt;
  }
  if (!moves_data(slot.operation.op)) return 0;
  const auto error = transferred(slot, result);
  if (!error) prepare(index);
  return error;
}

std::optional<int> FileQueue::transferred(Slot& slot, int result) {
  slot.retries = 0;
  slot.done += static_cast<std::uint64_t>(result);
  if (slot.done < length(slot.operation)) {
    // The end of a file that somebody cut off: nothing comes any more, or less than a block.
    if (result == 0 || slot.done % access_.block_bytes != 0) return EIO;
    return std::nullopt;
  }
  if (slot.copy != nullptr && slot.operation.op == Op::read) copy_out(slot.operation, slot.copy.get());
  return 0;
}

void FileQueue::release(std::uint32_t index) {
  if (slots_[index].copy != nullptr) --copies_;
  slots_[index].copy.reset();
  free_slots_.push_back(index);
}

}  // namespace xblk::store
