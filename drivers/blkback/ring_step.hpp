// What a worker knows of a ring: a body to step, and how to go to sleep beside it. One virtual call per dispatch round,
// not per request; so workers, and the apps that own their threads, need no platform parameter of the ring.
#pragma once

#include <cstdint>
#include <optional>

#include "drivers/base/units.hpp"

namespace xblk::blkback {

struct StepResult {
  unsigned requests = 0;  // consumed in this round
  bool progress = false;  // anything consumed or finished: step again before sleeping
};

class RingStep {
 public:
  virtual ~RingStep() = default;
  // One dispatch round over at most `budget` requests. Never blocks.
  virtual StepResult step(unsigned budget) = 0;
  // Going to sleep: asks for an event (RING_FINAL_CHECK_FOR_REQUESTS). Nothing: there is work already, do not sleep.
  // Otherwise the instant at which the ring wants to be stepped even without an event; Instant::never() for most.
  [[nodiscard]] virtual std::optional<Instant> arm(Instant now) = 0;
  // From time to time, also while busy: slow work in small slices (unused grants are given up).
  virtual void maintain(Instant now) = 0;
  // While polling: asks for no events.
  virtual void defer_events() = 0;
  // The ring's event channel fired.
  virtual void take_event() = 0;
  [[nodiscard]] virtual bool wants_polling() const = 0;
  // No request of this ring is between consumption and response.
  [[nodiscard]] virtual bool idle() const = 0;
  virtual void count_poll() = 0;
  virtual void count_spurious_event() = 0;
  virtual void add_cpu(std::uint64_t ns) = 0;
};

// Who steps rings: worker threads in real time, a seeded loop in virtual time.
template <class Waitable>
class RingRunner {
 public:
  virtual ~RingRunner() = default;
  // `events` becomes ready when the ring's event channel fires; `completions` likewise for its store (null: none).
  virtual void attach(RingStep& ring, Waitable events, const Waitable* completions) = 0;
  // Steps the ring until it is idle, then never again. On return no thread is inside the ring.
  virtual void detach(RingStep& ring) = 0;
  // Steps all rings once more, even if it sleeps. Any thread.
  virtual void wake() = 0;
};

}  // namespace xblk::blkback
