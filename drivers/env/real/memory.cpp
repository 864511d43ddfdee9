#include "drivers/env/real/memory.hpp"

#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fmt/format.h>

namespace xblk::env {
namespace {

constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

}  // namespace

Result<RealMemory> RealMemory::create(const std::string& name, std::uint32_t pages) {
  RealMemory memory;
  memory.fd_ = ::memfd_create(name.c_str(), MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (memory.fd_ < 0) return fail_errno("memfd_create " + name);
  const auto size = static_cast<off_t>(pages) * static_cast<off_t>(kPageSize);
  if (::ftruncate(memory.fd_, size) != 0) return fail_errno(fmt::format("size {} to {} bytes", name, size));
  if (::fcntl(memory.fd_, F_ADD_SEALS, kSeals) != 0) return fail_errno("seal " + name);
  memory.pages_ = pages;
  if (auto mapped = memory.map_all(); !mapped) return tl::unexpected(mapped.error());
  return memory;
}

Result<RealMemory> RealMemory::adopt(int fd) {
  RealMemory memory;
  memory.fd_ = fd;
  struct stat status {};
  if (::fstat(fd, &status) != 0) return fail_errno("stat of received memory");
  const int seals = ::fcntl(fd, F_GET_SEALS);
  if (seals < 0 || (seals & kSeals) != kSeals) return fail(EPROTO, "received memory is not sealed against resizing");
  memory.pages_ = static_cast<std::uint32_t>(static_cast<std::size_t>(status.st_size) / kPageSize);
  if (auto mapped = memory.map_all(); !mapped) return tl::unexpected(mapped.error());
  return memory;
}

Status RealMemory::map_all() {
  void* base = ::mmap(nullptr, pages_ * kPageSize, PROT_READ | PROT_WRITE, MAP_SHARED, fd_, 0);
  if (base == MAP_FAILED) return fail_errno(fmt::format("map {} pages of guest memory", pages_));
  base_ = static_cast<std::byte*>(base);
  return {};
}

RealMemory::~RealMemory() {
  if (base_ != nullptr) ::munmap(base_, pages_ * kPageSize);
  if (fd_ >= 0) ::close(fd_);
}

Result<std::byte*> RealMemory::map(FrameNumber first, std::uint32_t count, platform::Access access) const {
  const int protection = access == platform::Access::read_only ? PROT_READ : PROT_READ | PROT_WRITE;
  void* address = ::mmap(nullptr, count * kPageSize, protection, MAP_SHARED | MAP_POPULATE, fd_,
                         static_cast<off_t>(first.value()) * static_cast<off_t>(kPageSize));
  if (address == MAP_FAILED) {
    return fail_errno(fmt::format("map {} guest pages (vm.max_map_count limits the number of mappings)", count));
  }
  return static_cast<std::byte*>(address);
}

Result<std::byte*> RealMemory::map_scattered(std::span<const FrameNumber> frames, platform::Access access) const {
  // Reserve the window first, so that each page lands at a place that is ours to overwrite.
  const std::size_t size = frames.size() * kPageSize;
  void* reserved = ::mmap(nullptr, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (reserved == MAP_FAILED) return fail_errno(fmt::format("reserve a window of {} pages", frames.size()));
  auto* window = static_cast<std::byte*>(reserved);
  const int protection = access == platform::Access::read_only ? PROT_READ : PROT_READ | PROT_WRITE;
  for (std::size_t i = 0; i < frames.size(); ++i) {
    const void* mapped = ::mmap(window + i * kPageSize, kPageSize, protection, MAP_SHARED | MAP_POPULATE | MAP_FIXED,
                                fd_, static_cast<off_t>(frames[i].value()) * static_cast<off_t>(kPageSize));
    if (mapped == MAP_FAILED) {
      auto error = fail_errno(fmt::format("map {} guest pages (vm.max_map_count limits the number)", frames.size()));
      ::munmap(window, size);
      return error;
    }
  }
  return window;
}

void RealMemory::unmap(std::byte* address, std::uint32_t count) {
  ::munmap(address, count * kPageSize);
}

Result<RealDoorbell> RealDoorbell::create() {
  const int fd = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (fd < 0) return fail_errno("eventfd");
  return RealDoorbell(fd);
}

RealDoorbell::~RealDoorbell() {
  if (fd_ >= 0) ::close(fd_);
}

void RealDoorbell::ring() const {
  const std::uint64_t one = 1;
  // EAGAIN means the counter is saturated, that is: already rung.
  [[maybe_unused]] const ssize_t written = ::write(fd_, &one, sizeof one);
}

bool RealDoorbell::consume() const {
  std::uint64_t count = 0;
  return ::read(fd_, &count, sizeof count) == static_cast<ssize_t>(sizeof count);
}

}  // namespace xblk::env
