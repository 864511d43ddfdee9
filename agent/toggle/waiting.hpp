#pragma once

#include <algorithm>
#include <cerrno>

#include "agent/host/host.hpp"

namespace xblk::toggle {

// xenstore answers within 50 us; 2 ms between looks disturbs nothing and needs no watch that could be lost.
inline constexpr Nanos kPollInterval = millis(2);

// ETIMEDOUT at the deadline. A signal of stage 2 ("stop now") ends the wait with EINTR.
template <class Condition>
Status wait_until(host::Host& host, Instant deadline, const Condition& condition) {
  while (!condition()) {
    if (host.signals().stage >= 2) return fail(EINTR, "interrupted");
    if (host.now() >= deadline) return fail(ETIMEDOUT, "timed out");
    host.wait({}, std::min(deadline, host.now() + kPollInterval));
  }
  return {};
}

}  // namespace xblk::toggle
