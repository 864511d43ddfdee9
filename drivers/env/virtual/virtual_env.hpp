// env/virtual: time that moves only when told, on one thread.
//
// Drivers run as step() calls in an order drawn from a seed; nothing here blocks, so a lock that is already held or a
// wait that nobody can end is a bug of the caller and CHECKs. Costs are zero: this Env proves that driver code needs
// neither threads nor the machine's clock, and that the same seed gives the same run.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "drivers/base/check.hpp"
#include "drivers/base/result.hpp"
#include "drivers/base/units.hpp"
#include "drivers/platform/concepts.hpp"

namespace xblk::env {

// Guest memory is plain heap memory; a "mapping" is the page itself, and an unmap costs nothing.
class VirtualMemory {
 public:
  static Result<VirtualMemory> create(const std::string&, std::uint32_t pages) {
    VirtualMemory memory;
    memory.pages_ = pages;
    // Page-aligned, as the drivers reason in pages.
    // calloc: a page that is never touched costs nothing.
    memory.block_.reset(static_cast<std::byte*>(std::calloc(std::size_t{pages} + 1, kPageSize)));
    if (memory.block_ == nullptr) return fail(ENOMEM, "no memory for a guest in virtual time");
    const auto address = reinterpret_cast<std::uintptr_t>(memory.block_.get());
    memory.base_ = memory.block_.get() + (kPageSize - address % kPageSize) % kPageSize;
    return memory;
  }

  [[nodiscard]] std::byte* base() const { return base_; }
  [[nodiscard]] std::uint32_t pages() const { return pages_; }
  [[nodiscard]] Result<std::byte*> map(FrameNumber first, std::uint32_t count, platform::Access) const {
    XBLK_CHECK(std::uint64_t{first.value()} + count <= pages_, "the hypervisor validated the frames");
    return base_ + std::size_t{first.value()} * kPageSize;
  }
  // Without an MMU, only frames that are adjacent anyway.
  [[nodiscard]] Result<std::byte*> map_scattered(std::span<const FrameNumber> frames, platform::Access access) const {
    for (std::size_t i = 0; i < frames.size(); ++i) {
      if (frames[i].value() != frames[0].value() + i) {
        return fail(ENOTSUP, "map scattered guest pages side by side: in virtual time ring pages must be adjacent");
      }
    }
    return map(frames[0], static_cast<std::uint32_t>(frames.size()), access);
  }
  static void unmap(std::byte*, std::uint32_t) {}

 private:
  struct Free {
    void operator()(std::byte* block) const { std::free(block); }
  };
  std::unique_ptr<std::byte, Free> block_;
  std::byte* base_ = nullptr;
  std::uint32_t pages_ = 0;
};

class VirtualDoorbell {
 public:
  static Result<VirtualDoorbell> create() { return VirtualDoorbell(std::make_shared<bool>(false)); }
  VirtualDoorbell() = default;

  void ring() const { *rung_ = true; }
  bool consume() const { return std::exchange(*rung_, false); }
  [[nodiscard]] const bool* waitable() const { return rung_.get(); }
  [[nodiscard]] bool valid() const { return rung_ != nullptr; }

 private:
  explicit VirtualDoorbell(std::shared_ptr<bool> rung) : rung_(std::move(rung)) {}
  std::shared_ptr<bool> rung_;
};

class VirtualEnv {
 public:
  using Waitable = const bool*;  // true: ready
  using Memory = VirtualMemory;
  using Doorbell = VirtualDoorbell;

  // A lock on one thread is always free; one that is not would have deadlocked a real thread.
  class Mutex {
   public:
    explicit Mutex(VirtualEnv&) {}
    void lock(platform::LockWait&) { XBLK_CHECK(try_lock(), "self-deadlock: the lock is held by this very thread"); }
    bool try_lock() { return !std::exchange(held_, true); }
    void unlock() { held_ = false; }

   private:
    bool held_ = false;
  };

  class SpinLock {
   public:
    void lock(platform::LockWait&) { XBLK_CHECK(try_lock(), "self-deadlock: the lock is held by this very thread"); }
    bool try_lock() { return !std::exchange(held_, true); }
    void unlock() { held_ = false; }

   private:
    bool held_ = false;
  };

  class RwLock {
   public:
    explicit RwLock(VirtualEnv&) {}
    void lock(platform::LockWait&) {
      XBLK_CHECK(!writer_ && readers_ == 0, "self-deadlock: the lock is held by this very thread");
      writer_ = true;
    }
    void unlock() { writer_ = false; }
    void lock_shared(platform::LockWait&) {
      XBLK_CHECK(!writer_, "self-deadlock: the lock is held by this very thread");
      ++readers_;
    }
    void unlock_shared() { --readers_; }

   private:
    bool writer_ = false;
    int readers_ = 0;
  };

  // Waiting moves the clock to the deadline: on one thread nobody else can raise the signal meanwhile.
  class Signal {
   public:
    explicit Signal(VirtualEnv& env) : env_(env) {}
    void raise() { raised_ = true; }
    bool wait_until(Instant deadline) {
      if (std::exchange(raised_, false)) return true;
      XBLK_CHECK(deadline != Instant::never(), "an endless wait on one thread never ends");
      env_.advance_to(deadline);
      return false;
    }

   private:
    VirtualEnv& env_;
    bool raised_ = false;
  };

  class WaitSet {
   public:
    explicit WaitSet(VirtualEnv& env) : env_(env) {}
    Status add(Waitable source, std::uint64_t token) {
      sources_.emplace_back(source, token);
      return {};
    }
    void remove(Waitable source) {
      std::erase_if(sources_, [source](const auto& entry) { return entry.first == source; });
    }
    void wait(Instant deadline, std::vector<std::uint64_t>& ready) {
      const std::size_t before = ready.size();
      for (const auto& [source, token] : sources_) {
        if (*source) ready.push_back(token);
      }
      const bool woken = std::exchange(woken_, false);
      if (ready.size() != before || woken) return;
      if (deadline != Instant::never()) env_.advance_to(deadline);
    }
    void wake() { woken_ = true; }

   private:
    VirtualEnv& env_;
    std::vector<std::pair<Waitable, std::uint64_t>> sources_;
    bool woken_ = false;
  };

  [[nodiscard]] Instant now() const { return now_; }
  void advance_to(Instant when) {
    if (when > now_) now_ = when;
  }
  // Spinning helps nobody on one thread.
  [[nodiscard]] bool cpus_oversubscribed() const { return true; }
  void relax() {}
  void yield() {}
  [[nodiscard]] Nanos thread_cpu() const { return Nanos(0); }

 private:
  Instant now_{0};
};

static_assert(platform::Env<VirtualEnv>);

}  // namespace xblk::env
