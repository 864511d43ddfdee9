// How channels wait on a shared ring: one leader watches the ring (polls, then sleeps on the event channel); the others
// sleep on their own mailbox, and are woken when the leader finds their completions or gives up the lead.
//
// Event hold-off: the leader may ask one event for several responses, but for a bounded time only. No wake-up is lost:
// FrontView::final_check() publishes the wanted index before it looks at the responses once more, and the backend
// publishes a response before it looks at the wanted index. So either the leader sees the response and does not sleep,
// or the backend sees an index that it has not reached yet. It reaches it, since the index is cut to the requests that
// it owes a response to; and if the last of them is slow, the sleep ends at the bound, the leader takes what is there,
// and if that is nothing, asks for an event at the very next response before it sleeps again.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "drivers/base/check.hpp"
#include "drivers/blkfront/mailbox.hpp"
#include "drivers/blkfront/ring.hpp"
#include "drivers/platform/barriers.hpp"
#include "drivers/platform/concepts.hpp"

namespace xblk::blkfront {

struct WaitPolicy {
  bool adaptive = true;       // poll before sleeping
  std::uint32_t holdoff = 1;  // responses to ask one event for
  Nanos holdoff_limit = {};   // and for how long at most
};

template <class P>
class RingWaiter {
 public:
  using Env = typename P::Env;

  RingWaiter(Env& env, typename P::Front& hypervisor, Ring<P>& ring)
      : env_(env), hypervisor_(hypervisor), ring_(ring), waits_(env) {}

  void watch(EventPort port) {
    const auto added = waits_.add(hypervisor_.waitable(port), 0);
    XBLK_CHECK(added.has_value(), "an event channel can be waited for");
  }
  void unwatch(EventPort port) { waits_.remove(hypervisor_.waitable(port)); }
  // For the control thread: whoever sleeps looks again.
  void wake() { waits_.wake(); }

  // With the ring's lock held.
  void set_policy(const WaitPolicy& policy) { policy_ = policy; }

  // Called and returns with the ring's lock held. Waits until something may have changed for `mailbox`.
  void wait(Mailbox<P>& mailbox, Instant now, Instant deadline) {
    deadline = std::min(deadline, now + kSleepMax);
    if (ring_.has_leader) {
      follow(mailbox, deadline);
    } else {
      lead(now, deadline);
    }
  }

  // Of a channel that stops waiting: it may have been asked to lead, so it passes that on.
  void pass_on() {
    if (ring_.has_leader) return;
    const auto next = std::find_if(ring_.mailboxes.begin(), ring_.mailboxes.end(),
                                   [](const Mailbox<P>* m) { return m->waiting && m->ready.empty(); });
    if (next != ring_.mailboxes.end()) (*next)->wake();
  }

 private:
  static constexpr Nanos kPollWindow = micros(50);  // as the backend's worker: about twice a cross-CPU wake-up
  // Nobody sleeps longer without looking whether the backend still exists.
  static constexpr Nanos kSleepMax = millis(100);
  // No event tells when another queue gives back what our backlog waits for.
  static constexpr Nanos kStarvedSleep = millis(1);
  static constexpr unsigned kTurnsPerClockRead = 32;

  void follow(Mailbox<P>& mailbox, Instant deadline) {
    mailbox.waiting = true;
    ring_.mutex().unlock();
    mailbox.signal.wait_until(deadline);
    relock();
    mailbox.waiting = false;
  }

  void lead(Instant now, Instant deadline) {
    ring_.has_leader = true;
    if (!poll(now, deadline)) sleep(deadline);
    ring_.has_leader = false;
    pass_on();
  }

  // True: responses have arrived. The lock is free meanwhile, so that others can submit.
  bool poll(Instant now, Instant deadline) {
    if (!policy_.adaptive || !ring_.attached() || ring_.starved() || env_.cpus_oversubscribed()) return false;
    ring_.defer_events();
    ring_.polled = true;
    const std::uint32_t* const index = ring_.response_index();
    const std::uint32_t seen = ring_.consumed();
    ring_.mutex().unlock();
    const Instant until = std::min(deadline, now + kPollWindow);
    bool found = false;
    unsigned turns = 0;
    do {
      for (unsigned i = 0; i < kTurnsPerClockRead && !found; ++i, ++turns) {
        found = platform::load_acquire(*index) != seen;
        if (!found) env_.relax();
      }
    } while (!found && env_.now() < until);
    relock();
    ring_.polled = false;
    ring_.counters().add(Counter::polls, turns);
    if (found) spurious_in_a_row_ = 0;
    return found;
  }

  void sleep(Instant deadline) {
    if (ring_.starved()) deadline = std::min(deadline, env_.now() + kStarvedSleep);
    if (spurious_in_a_row_ >= kSpuriousFree && ring_.attached()) return sleep_deaf(deadline);
    const std::uint32_t asked = ring_.arm(std::exchange(look_closely_, false) ? 1 : policy_.holdoff);
    if (asked == 0) return;
    const Instant bound = asked > 1 ? env_.now() + policy_.holdoff_limit : Instant::never();
    if (asked > 1) ring_.counters().add(Counter::events_held_off);
    const std::uint32_t seen = ring_.consumed();
    if (wait_for_event(std::min(deadline, bound))) {
      const bool found = ring_.has_responses() || ring_.consumed() != seen;
      ring_.counters().add(Counter::events_received);
      if (!found) ring_.counters().add(Counter::events_spurious);
      spurious_in_a_row_ = found ? 0 : spurious_in_a_row_ + 1;
    } else if (bound < deadline && env_.now() >= bound) {
      ring_.counters().add(Counter::holdoff_timeouts);
      look_closely_ = !ring_.has_responses();
    }
  }

  // A backend that sends events without responses is listened to less and less (XSA-391; Linux delays the event's
  // acknowledgement likewise): the ring is looked at after a time that doubles, until there is a response.
  void sleep_deaf(Instant deadline) {
    const unsigned doublings = std::min(spurious_in_a_row_++ - kSpuriousFree, kDeafDoublingsMax);
    const Instant until = env_.now() + Nanos(kDeafFirst.value() << doublings);
    const EventPort port = ring_.port();
    hypervisor_.mask(port);
    wait_for_event(std::min(deadline, until));
    if (ring_.attached()) hypervisor_.unmask(port);
    if (ring_.has_responses()) spurious_in_a_row_ = 0;
  }

  // True: the event has come, and is taken. The lock is free meanwhile; the ring may be detached when this returns.
  bool wait_for_event(Instant until) {
    ring_.mutex().unlock();
    std::vector<std::uint64_t> ready;
    waits_.wait(until, ready);
    relock();
    return !ready.empty() && ring_.attached() && hypervisor_.consume(ring_.port());
  }

  void relock() {
    platform::LockWait waited;
    ring_.mutex().lock(waited);
    count_ring_lock(ring_.counters(), waited);
  }

  static constexpr unsigned kSpuriousFree = 4;  // events in a row; one or two can be stale
  static constexpr Nanos kDeafFirst = micros(100);
  static constexpr unsigned kDeafDoublingsMax = 7;  // 12.8 ms

  Env& env_;
  typename P::Front& hypervisor_;
  Ring<P>& ring_;
  typename Env::WaitSet waits_;
  // Under the ring's lock.
  WaitPolicy policy_;
  bool look_closely_ = false;  // a hold-off ended in vain
  unsigned spurious_in_a_row_ = 0;
};

}  // namespace xblk::blkfront
