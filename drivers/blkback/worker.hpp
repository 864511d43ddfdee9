// A worker steps many rings and waits once for all of them. The app owns the thread that calls run().
//
// Event-driven: step until nothing moves, arm every ring, sleep. Adaptive polling: between "nothing moves" and "arm",
// spin for a while with events deferred, because a wake-up across CPUs costs far more than a request. Spinning takes a
// CPU from whoever would send the next request, so it stops when more threads are runnable than there are CPUs.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <optional>
#include <vector>

#include "drivers/base/check.hpp"
#include "drivers/base/units.hpp"
#include "drivers/blkback/ring_step.hpp"
#include "drivers/platform/concepts.hpp"

namespace xblk::blkback {

template <platform::Env Env>
class Worker final : public RingRunner<typename Env::Waitable> {
 public:
  using Waitable = typename Env::Waitable;

  explicit Worker(Env& env) : env_(env), mutex_(env), waits_(env) {}

  void attach(RingStep& ring, Waitable events, const Waitable* completions) override {
    const Visit visit(*this);
    const auto token = reinterpret_cast<std::uint64_t>(&ring);
    entries_.push_back({&ring, events, completions != nullptr ? *completions : Waitable{}, completions != nullptr});
    const auto added = waits_.add(events, token);
    XBLK_CHECK(added.has_value(), "an event channel can be waited for");
    if (completions != nullptr) {
      const auto also = waits_.add(*completions, token);
      XBLK_CHECK(also.has_value(), "a store's completions can be waited for");
    }
    waits_.wake();
  }

  void detach(RingStep& ring) override {
    const Visit visit(*this);
    const auto entry = std::find_if(entries_.begin(), entries_.end(), [&](const Entry& e) { return e.ring == &ring; });
    XBLK_CHECK(entry != entries_.end(), "detach pairs with attach");
    while (!ring.idle()) ring.step(0);  // what was consumed is answered; nothing new is taken
    waits_.remove(entry->events);
    if (entry->has_completions) waits_.remove(entry->completions);
    entries_.erase(entry);
  }

  void run(const std::atomic<bool>& stop) {
    while (!stop.load(std::memory_order_relaxed)) turn();
  }
  void wake() override { waits_.wake(); }

 private:
  static constexpr unsigned kBudget = 64;           // requests per ring and round, so that no ring starves the others
  static constexpr Nanos kPollWindow = micros(50);  // about twice a cross-CPU wake-up (25.9 us on a 2-vCPU VM)
  static constexpr Nanos kCpuAccounting = millis(1);

  struct Entry {
    RingStep* ring = nullptr;
    Waitable events{};
    Waitable completions{};
    bool has_completions = false;
    unsigned served = 0;  // requests since the last CPU accounting
    bool woken = false;   // by its event channel, since its last step
  };

  // A control thread inside the worker. A busy worker would take its own lock back at once, for ever; so it steps aside
  // while anybody visits.
  class Visit {
   public:
    explicit Visit(Worker& worker) : worker_(worker) {
      platform::LockWait ignored;
      worker_.visitors_.fetch_add(1, std::memory_order_relaxed);
      worker_.mutex_.lock(ignored);
    }
    ~Visit() {
      worker_.mutex_.unlock();
      worker_.visitors_.fetch_sub(1, std::memory_order_relaxed);
    }
    Visit(const Visit&) = delete;
    Visit& operator=(const Visit&) = delete;

   private:
    Worker& worker_;
  };

  void turn() {
    while (visitors_.load(std::memory_order_relaxed) > 0) env_.yield();
    platform::LockWait ignored;
    mutex_.lock(ignored);
    std::optional<Instant> quiet_until;
    if (step_all()) {
      polling_since_ = Instant::never();
    } else if (!keep_polling()) {
      quiet_until = arm_all();
    }
    if (quiet_until || ++turns_ % kTurnsPerClockRead == 0) look_at_the_clock();
    mutex_.unlock();
    if (quiet_until) wait_for_events(*quiet_until);
  }

  bool step_all() {
    bool progress = false;
    for (Entry& entry : entries_) {
      const StepResult result = entry.ring->step(kBudget);
      entry.served += result.requests;
      progress |= result.progress;
      if (entry.woken && !result.progress) entry.ring->count_spurious_event();
      entry.woken = false;
    }
    return progress;
  }

  // True: spin one more turn.
  bool keep_polling() {
    const bool wanted =
        std::any_of(entries_.begin(), entries_.end(), [](const Entry& e) { return e.ring->wants_polling(); });
    if (!wanted || env_.cpus_oversubscribed()) {
      polling_since_ = Instant::never();
      return false;
    }
    const Instant now = env_.now();
    if (polling_since_ == Instant::never()) {
      polling_since_ = now;
      for (Entry& entry : entries_) entry.ring->defer_events();
    }
    if (now - polling_since_ > kPollWindow) {
      polling_since_ = Instant::never();
      return false;
    }
    for (Entry& entry : entries_) entry.ring->count_poll();
    env_.relax();
    return true;
  }

  // Until when all rings can sleep; nothing when one of them cannot.
  std::optional<Instant> arm_all() {
    const Instant now = env_.now();
    std::optional<Instant> until = Instant::never();
    for (Entry& entry : entries_) {
      const auto armed = entry.ring->arm(now);
      until = until && armed ? std::optional(std::min(*until, *armed)) : std::nullopt;
    }
    return until;
  }

  void wait_for_events(Instant until) {
    ready_.clear();
    waits_.wait(until, ready_);
    if (ready_.empty()) return;
    platform::LockWait ignored;
    mutex_.lock(ignored);
    for (const std::uint64_t token : ready_) {
      for (Entry& entry : entries_) {
        if (reinterpret_cast<std::uint64_t>(entry.ring) != token) continue;
        entry.ring->take_event();
        entry.woken = true;
      }
    }
    mutex_.unlock();
  }

  void look_at_the_clock() {
    const Instant now = env_.now();
    if (now - accounted_at_ < kCpuAccounting) return;
    for (Entry& entry : entries_) entry.ring->maintain(now);
    account_cpu(now);
  }

  // The worker's CPU time, shared out over its rings by the requests they had served. Time spent polling in vain is
  // charged to the requests that it waited for.
  void account_cpu(Instant now) {
    std::uint64_t served = 0;
    for (const Entry& entry : entries_) served += entry.served;
    if (served == 0) return;
    accounted_at_ = now;
    const Nanos cpu = env_.thread_cpu();
    const auto spent = static_cast<std::uint64_t>((cpu - cpu_).value());
    cpu_ = cpu;
    for (Entry& entry : entries_) {
      entry.ring->add_cpu(spent * entry.served / served);
      entry.served = 0;
    }
  }

  static constexpr unsigned kTurnsPerClockRead = 64;

  Env& env_;
  typename Env::Mutex mutex_;
  typename Env::WaitSet waits_;
  std::vector<Entry> entries_;
  std::vector<std::uint64_t> ready_;
  std::atomic<int> visitors_{0};
  Instant polling_since_ = Instant::never();
  Instant accounted_at_{0};
  Nanos cpu_{0};
  unsigned turns_ = 0;
};

}  // namespace xblk::blkback
