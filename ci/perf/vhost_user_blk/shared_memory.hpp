// The memory that driver and server share: one memfd for queues, requests and fio's buffers.
#pragma once

#include <cstddef>

#include "drivers/base/result.hpp"
#include "drivers/base/unique_fd.hpp"
#include "drivers/base/units.hpp"

namespace xblk::vhost_user {

inline constexpr std::size_t kHugePageSize = std::size_t{2} << 20;

class SharedMemory {
 public:
  // Zeroed. `huge_pages`: from the kernel's pool of 2 MiB pages, which SPDK insists on.
  static Result<SharedMemory> create(Bytes size, bool huge_pages);
  SharedMemory(SharedMemory&& other) noexcept;
  SharedMemory& operator=(SharedMemory&&) = delete;
  ~SharedMemory();

  [[nodiscard]] std::byte* base() const { return base_; }
  [[nodiscard]] std::size_t size() const { return size_; }
  [[nodiscard]] int fd() const { return fd_.get(); }

 private:
  SharedMemory(UniqueFd fd, std::byte* base, std::size_t size) : fd_(std::move(fd)), base_(base), size_(size) {}

  UniqueFd fd_;
  std::byte* base_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace xblk::vhost_user
