// Units as types: a sector is not a byte, a grant reference is not a port, an instant is not a duration.
// Each is one integer with an explicit constructor and `.value()`; quantities add and scale, identifiers only compare.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>

namespace xblk {

// A name for something: comparable, hashable, no arithmetic.
template <class Tag, class Rep>
class Id {
 public:
  constexpr Id() = default;
  constexpr explicit Id(Rep value) : value_(value) {}
  [[nodiscard]] constexpr Rep value() const { return value_; }
  friend constexpr auto operator<=>(Id, Id) = default;

 private:
  Rep value_{};
};

// An amount of something: adds, subtracts, scales and divides.
template <class Tag, class Rep>
class Quantity {
 public:
  constexpr Quantity() = default;
  constexpr explicit Quantity(Rep value) : value_(value) {}
  [[nodiscard]] constexpr Rep value() const { return value_; }
  friend constexpr auto operator<=>(Quantity, Quantity) = default;
  constexpr Quantity& operator+=(Quantity o) {
    value_ += o.value_;
    return *this;
  }
  constexpr Quantity& operator-=(Quantity o) {
    value_ -= o.value_;
    return *this;
  }
  friend constexpr Quantity operator+(Quantity a, Quantity b) { return Quantity(a.value_ + b.value_); }
  friend constexpr Quantity operator-(Quantity a, Quantity b) { return Quantity(a.value_ - b.value_); }
  friend constexpr Quantity operator*(Quantity a, Rep k) { return Quantity(a.value_ * k); }
  friend constexpr Rep operator/(Quantity a, Quantity b) { return a.value_ / b.value_; }

 private:
  Rep value_{};
};

using DomId = Id<struct DomIdTag, std::uint16_t>;          // Xen domain number; 0 is the control domain
using GrantRef = Id<struct GrantRefTag, std::uint32_t>;    // index into the granting domain's grant table
using EventPort = Id<struct EventPortTag, std::uint32_t>;  // event-channel port, local to one domain; 0 is never valid
using FrameNumber = Id<struct FrameTag, std::uint32_t>;    // page index inside one domain's memory
using MapHandle = Id<struct MapHandleTag, std::uint32_t>;  // maptrack handle of one mapping
using QueueIndex = Id<struct QueueIndexTag, std::uint16_t>;  // ring number inside one vbd

using Sectors = Quantity<struct SectorsTag, std::uint64_t>;  // always of 512 bytes, whatever the device's sector-size
using Bytes = Quantity<struct BytesTag, std::uint64_t>;
using Nanos = Quantity<struct NanosTag, std::int64_t>;  // a duration

// A point on an Env's clock. Only differences mean anything.
class Instant {
 public:
  constexpr Instant() = default;
  constexpr explicit Instant(std::int64_t ns_since_epoch) : ns_(ns_since_epoch) {}
  [[nodiscard]] constexpr std::int64_t ns() const { return ns_; }
  friend constexpr auto operator<=>(Instant, Instant) = default;
  friend constexpr Nanos operator-(Instant a, Instant b) { return Nanos(a.ns_ - b.ns_); }
  // Saturates: an instant plus kForever is never().
  friend constexpr Instant operator+(Instant a, Nanos d) {
    std::int64_t sum = 0;
    return __builtin_add_overflow(a.ns_, d.value(), &sum) ? never() : Instant(sum);
  }
  static constexpr Instant never() { return Instant(INT64_MAX); }

 private:
  std::int64_t ns_ = 0;
};

inline constexpr DomId kDom0{0};
inline constexpr std::size_t kPageSize = 4096;   // XEN_PAGE_SIZE, on every architecture (blkif.h)
inline constexpr std::size_t kSectorSize = 512;  // blkif.h: all units on the wire are 512 bytes
inline constexpr std::uint32_t kSectorsPerPage = kPageSize / kSectorSize;

inline constexpr Nanos kForever{INT64_MAX};  // as a timeout: no deadline

constexpr Bytes to_bytes(Sectors s) {
  return Bytes(s.value() * kSectorSize);
}
constexpr Nanos micros(std::int64_t us) {
  return Nanos(us * 1000);
}
constexpr Nanos millis(std::int64_t ms) {
  return Nanos(ms * 1000 * 1000);
}
constexpr Nanos seconds(std::int64_t s) {
  return Nanos(s * 1000 * 1000 * 1000);
}

}  // namespace xblk

template <class Tag, class Rep>
struct std::hash<xblk::Id<Tag, Rep>> {
  std::size_t operator()(xblk::Id<Tag, Rep> id) const noexcept { return std::hash<Rep>{}(id.value()); }
};
