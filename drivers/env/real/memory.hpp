// Guest memory and doorbells of the emulation in real time: sealed memfds and eventfds.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>

#include "drivers/base/result.hpp"
#include "drivers/base/units.hpp"
#include "drivers/platform/grants.hpp"

namespace xblk::env {

// A memfd of whole pages, sealed against shrink, grow and further seals before anybody else sees it: a guest that
// holds the descriptor can punch holes (it reads zeros then) but can never make this process take a SIGBUS.
class RealMemory {
 public:
  static Result<RealMemory> create(const std::string& name, std::uint32_t pages);
  // A memfd received from its creator; its size is taken from the kernel, its seals are checked.
  static Result<RealMemory> adopt(int fd);

  RealMemory() = default;
  RealMemory(RealMemory&& other) noexcept { swap(other); }
  RealMemory& operator=(RealMemory&& other) noexcept {
    swap(other);
    return *this;
  }
  ~RealMemory();

  [[nodiscard]] std::byte* base() const { return base_; }  // this process' own mapping of the whole memory
  [[nodiscard]] std::uint32_t pages() const { return pages_; }
  [[nodiscard]] int fd() const { return fd_; }

  // A new mapping of `count` pages from `first`, populated so that the page-table entry exists: its unmap is then a
  // real TLB flush, sent as an IPI to every CPU that runs another thread of this process.
  [[nodiscard]] Result<std::byte*> map(FrameNumber first, std::uint32_t count, platform::Access access) const;
  // The same for frames in any order: one contiguous window, as a ring of several pages needs.
  [[nodiscard]] Result<std::byte*> map_scattered(std::span<const FrameNumber> frames, platform::Access access) const;
  static void unmap(std::byte* address, std::uint32_t count);

 private:
  void swap(RealMemory& other) noexcept {
    std::swap(fd_, other.fd_);
    std::swap(base_, other.base_);
    std::swap(pages_, other.pages_);
  }
  Status map_all();
  int fd_ = -1;
  std::byte* base_ = nullptr;
  std::uint32_t pages_ = 0;
};

// An eventfd: rung by one side, awaited by the other. Rings are not counted.
class RealDoorbell {
 public:
  static Result<RealDoorbell> create();
  explicit RealDoorbell(int adopted_fd) : fd_(adopted_fd) {}

  RealDoorbell() = default;
  RealDoorbell(RealDoorbell&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  RealDoorbell& operator=(RealDoorbell&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~RealDoorbell();

  void ring() const;
  bool consume() const;  // true when it had been rung
  [[nodiscard]] int waitable() const { return fd_; }
  [[nodiscard]] bool valid() const { return fd_ >= 0; }

 private:
  int fd_ = -1;
};

}  // namespace xblk::env
