// How channels wait on a shared ring: one leader watches the ring (polls, then sleeps on the event channel); the others
// sleep on their own mailbox, and are woken when the leader finds their completions or gives up the lead.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "drivers/base/check.hpp"
#include "drivers/blkfront/ring.hpp"
#include "drivers/platform/barriers.hpp"
#include "drivers/platform/concepts.hpp"

namespace xblk::blkfront {

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

  void set_adaptive(bool adaptive) { adaptive_ = adaptive; }

  // Called and returns with the ring's lock held. Waits until something may have changed for `mailbox`.
  void wait(Mailbox<P>& mailbox, Instant deadline) {
    if (ring_.has_leader) {
      follow(mailbox, deadline);
    } else {
      lead(deadline);
    }
  }

 private:
  static constexpr Nanos kPollWindow = micros(50);  // as the backend's worker: about twice a cross-CPU wake-up
  // Nobody sleeps longer without looking whether the backend still exists.
  static constexpr Nanos kSleepMax = millis(100);

  void follow(Mailbox<P>& mailbox, Instant deadline) {
    mailbox.waiting = true;
    ring_.mutex().unlock();
    mailbox.signal.wait_until(std::min(deadline, env_.now() + kSleepMax));
    relock();
    mailbox.waiting = false;
  }

  void lead(Instant deadline) {
    ring_.has_leader = true;
    if (!poll(deadline)) sleep(deadline);
    ring_.has_leader = false;
    // The next leader is one that still waits for something.
    const auto next = std::find_if(ring_.mailboxes.begin(), ring_.mailboxes.end(),
                                   [](const Mailbox<P>* m) { return m->waiting && m->ready.empty(); });
    if (next != ring_.mailboxes.end()) (*next)->signal.raise();
  }

  // True: responses have arrived. The lock is free meanwhile, so that others can submit.
  bool poll(Instant deadline) {
    if (!adaptive_ || !ring_.attached() || env_.cpus_oversubscribed()) return false;
    ring_.defer_events();
    ring_.polled = true;
    const std::uint32_t* const index = ring_.response_index();
    const std::uint32_t seen = ring_.consumed();
    ring_.mutex().unlock();
    const Instant until = std::min(deadline, env_.now() + kPollWindow);
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
    ring_.count_polls(turns);
    return found;
  }

  void sleep(Instant deadline) {
    if (!ring_.arm()) return;
    ring_.mutex().unlock();
    std::vector<std::uint64_t> ready;
    waits_.wait(std::min(deadline, env_.now() + kSleepMax), ready);
    relock();
    if (!ready.empty() && ring_.attached() && hypervisor_.consume(ring_.port()))
      ring_.count_event(ring_.has_responses());
  }

  void relock() {
    platform::LockWait waited;
    ring_.mutex().lock(waited);
    ring_.count_ring_lock(waited);
  }

  static constexpr unsigned kTurnsPerClockRead = 32;

  Env& env_;
  typename P::Front& hypervisor_;
  Ring<P>& ring_;
  typename Env::WaitSet waits_;
  bool adaptive_ = true;
};

}  // namespace xblk::blkfront
