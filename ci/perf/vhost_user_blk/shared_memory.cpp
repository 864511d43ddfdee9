#include "ci/perf/vhost_user_blk/shared_memory.hpp"

#include <sys/mman.h>

#include <utility>

#include <fmt/format.h>

namespace xblk::vhost_user {

Result<SharedMemory> SharedMemory::create(Bytes size, bool huge_pages) {
  const std::size_t unit = huge_pages ? kHugePageSize : kPageSize;
  const std::size_t bytes = (size.value() + unit - 1) / unit * unit;
  UniqueFd fd(::memfd_create("xblk-vhost-user", MFD_CLOEXEC | (huge_pages ? MFD_HUGETLB : 0u)));
  if (!fd) return fail_errno("memfd_create");
  if (::ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0) return fail_errno("resize the memfd");
  void* base = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  if (base == MAP_FAILED && huge_pages) {
    return fail_errno(fmt::format("map {} huge pages (see /proc/sys/vm/nr_hugepages)", bytes / unit));
  }
  if (base == MAP_FAILED) return fail_errno(fmt::format("map {} bytes of shared memory", bytes));
  return SharedMemory(std::move(fd), static_cast<std::byte*>(base), bytes);
}

SharedMemory::SharedMemory(SharedMemory&& other) noexcept
    : fd_(std::move(other.fd_)), base_(std::exchange(other.base_, nullptr)), size_(std::exchange(other.size_, 0)) {}

SharedMemory::~SharedMemory() {
  if (base_ != nullptr) ::munmap(base_, size_);
}

}  // namespace xblk::vhost_user
