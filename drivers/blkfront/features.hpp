// The optional operations that the backend offered at the last connect. One that it answers with BLKIF_RSP_EOPNOTSUPP
// all the same is withdrawn until the next connect, as Linux blkfront does; the device goes on without it.
//
// One object for all rings of a device: a ring that learns of it tells the others.
#pragma once

#include <atomic>
#include <cstdint>

#include "drivers/blkfront/block_device.hpp"

namespace xblk::blkfront {

enum class Feature : std::uint8_t { flush = 1, barrier = 2, discard = 4, discard_secure = 8 };

class Features {
 public:
  void offer(const Negotiated& n) {
    offered_.store(
        static_cast<std::uint8_t>(bit(n.flush, Feature::flush) | bit(n.barrier, Feature::barrier) |
                                  bit(n.discard, Feature::discard) | bit(n.discard_secure, Feature::discard_secure)),
        std::memory_order_relaxed);
  }
  void withdraw(Feature feature) {
    offered_.fetch_and(static_cast<std::uint8_t>(~static_cast<unsigned>(feature)), std::memory_order_relaxed);
  }
  [[nodiscard]] bool has(Feature feature) const {
    return (offered_.load(std::memory_order_relaxed) & static_cast<unsigned>(feature)) != 0;
  }
  // `n` without what was withdrawn.
  [[nodiscard]] Negotiated left_of(Negotiated n) const {
    n.flush = has(Feature::flush);
    n.barrier = has(Feature::barrier);
    n.discard = has(Feature::discard);
    n.discard_secure = has(Feature::discard_secure);
    return n;
  }

 private:
  static unsigned bit(bool offered, Feature feature) { return offered ? static_cast<unsigned>(feature) : 0; }

  std::atomic<std::uint8_t> offered_{0};
};

}  // namespace xblk::blkfront
