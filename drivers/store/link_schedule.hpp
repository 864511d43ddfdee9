// When transfers over a link arrive: arithmetic on instants, no clock of its own.
//
// The link is one wire for both directions. Transfers occupy it one after another, in the order of their submission,
// each for bytes/rate; what a transfer brings is delivered one round trip after its last byte. A command without data
// occupies nothing and takes the round trip alone.
#pragma once

#include <algorithm>
#include <cstdint>

#include "drivers/base/units.hpp"
#include "drivers/store/specification.hpp"

namespace xblk::store {

class LinkSchedule {
 public:
  explicit LinkSchedule(Link link) : link_(link) {}

  // The instant of delivery of what is submitted `now`.
  Instant transfer(Instant now, Bytes bytes) {
    if (now >= free_at_) {
      free_at_ = now;
      remainder_ = 0;
    }
    // In units of 1/rate nanoseconds, whose fraction is carried over, so that a million small transfers take exactly
    // as long as one large one.
    const auto units = static_cast<unsigned __int128>(bytes.value()) * 1'000'000'000 + remainder_;
    remainder_ = static_cast<std::uint64_t>(units % link_.bytes_per_second);
    free_at_ = free_at_ + Nanos(static_cast<std::int64_t>(units / link_.bytes_per_second));
    return free_at_ + link_.round_trip;
  }
  [[nodiscard]] Instant command(Instant now) const { return now + link_.round_trip; }

 private:
  Link link_;
  Instant free_at_;
  std::uint64_t remainder_ = 0;  // of a nanosecond, in 1/rate
};

}  // namespace xblk::store
