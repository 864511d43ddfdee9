// One queue of the frontend: I/Os in, ring requests out, responses back to the channel that asked.
//
// Everything here runs under the ring's lock. Several channels (threads) may share a ring; whoever holds the lock may
// process responses, and routes each completion to the channel that owns it.
//
// An I/O may need more requests than fit; what does not fit yet waits in `backlog_` and is issued as responses free
// slots. Nothing is submitted behind it meanwhile.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "drivers/base/counters.hpp"
#include "drivers/blkfront/block_device.hpp"
#include "drivers/blkfront/data_path.hpp"
#include "drivers/blkfront/features.hpp"
#include "drivers/blkfront/in_flight.hpp"
#include "drivers/blkfront/mailbox.hpp"
#include "drivers/blkfront/request_sender.hpp"
#include "drivers/blkfront/ring_setup.hpp"
#include "drivers/blkif/wire.hpp"
#include "drivers/platform/concepts.hpp"
#include "drivers/platform/shared_ring.hpp"
#include "drivers/platform/untrusted.hpp"

namespace xblk::blkfront {

// By whoever has just taken the lock.
inline void count_ring_lock(QueueCounters& counters, const platform::LockWait& wait) {
  if (wait.contended == 0) return;
  counters.add(Counter::ring_lock_wait_ns, wait.wait_ns);
  counters.add(Counter::ring_lock_contended, wait.contended);
}

template <class P>
class Ring {
 public:
  using Env = typename P::Env;
  using Pool = std::shared_ptr<GrantPool<P>>;

  Ring(Env& env, typename P::Front& hypervisor, QueueCounters& counters)
      : mutex_(env),
        hypervisor_(hypervisor),
        counters_(counters),
        path_(hypervisor, counters),
        sender_(setup_, view_, flight_, path_, counters) {}

  // ---- life cycle (the device's control thread) ----

  void attach(const RingSetup& setup, Pool data, Pool indirect) {
    setup_ = setup;
    path_.attach(setup.backend, std::move(data), std::move(indirect));
    view_ = platform::FrontView(setup.shared, blkif::kNativeAbi, setup.slots);
    flight_ = InFlight<Mailbox<P>>(setup.slots, setup.segments_max);
    attached_ = true;
    quiescing_ = false;
    events_deferred_ = false;
    publish_gauges();
  }

  // Takes no new I/O; what is in flight goes on until detach().
  void quiesce() { quiescing_ = true; }

  enum class Until : std::uint8_t { reconnect, for_good };

  // Nothing is in flight any more, or the backend is dead and everything in flight fails with ENODEV. New I/O is told
  // to come again, or that there is nothing to come back to.
  void detach(Until until) {
    fail_in_flight(ENODEV);
    attached_ = false;
    gone_ = until == Until::for_good;
    path_.detach();
    publish_gauges();
  }

  // Live resize: I/O beyond the new end is refused from now on.
  void set_capacity(Sectors capacity) { setup_.device.capacity = capacity; }

  [[nodiscard]] const DeviceInfo& device() const { return setup_.device; }
  [[nodiscard]] bool attached() const { return attached_; }
  [[nodiscard]] bool broken() const { return broken_; }
  // Whether data are copied, so that any memory of a caller will do.
  [[nodiscard]] bool copies() const { return setup_.copies; }
  [[nodiscard]] std::uint32_t in_flight() const { return flight_.ios(); }
  [[nodiscard]] EventPort port() const { return setup_.port; }

  // The owner goes away with I/O in flight: its completions go nowhere and its buffers are not touched any more.
  void disown(const Mailbox<P>& owner) {
    flight_.disown(owner);
    std::erase(mailboxes, &owner);
  }

  // Takes back what the backend held when it was given up. Returns how many pages it still holds.
  std::uint32_t end_abandoned() { return path_.end_abandoned(); }

  // ---- data path ----

  // EAGAIN when the ring is full, or pages or grants are short. `io` has been checked.
  [[nodiscard]] Status submit(const Io& io, Mailbox<P>& owner) {
    if (broken_) return fail(ENODEV, "the backend broke the protocol");
    if (gone_) return fail(ENODEV, "the backend is gone");
    if (!attached_ || quiescing_) return fail(EAGAIN, "reconnecting");
    if (backlog_ || flight_.full()) {
      counters_.add(Counter::ring_full_stalls);
      return kRingFull;
    }
    const std::uint32_t index = flight_.begin_io(io, owner);
    const Progress progress = sender_.advance(index);
    if (progress != Progress::done) {
      if (flight_.io(index).requests == 0) {  // not even one request fitted: as if never submitted
        flight_.end_io(index);
        counters_.add(Counter::ring_full_stalls);
        if (progress == Progress::waits) return kRingFull;
        return fail(ENOMEM,
                    "no grantable memory or grant entries for one request, and nobody gives any back; raise "
                    "max_grant_frames or the guest's memory");
      }
      backlog_ = index;
    }
    ++owner.in_flight;
    counters_.add(Counter::ios);
    return {};
  }

  // One push, at most one notification.
  void commit() {
    if (!attached_ || broken_ || !view_.has_unpushed()) return;  // broken: what was not pushed has failed already
    counters_.add(Counter::batches);
    if (view_.push()) {
      hypervisor_.notify(setup_.port);
      counters_.add(Counter::notifications_sent);
    } else {
      counters_.add(Counter::notifications_suppressed);
    }
    publish_gauges();
  }

  // Takes every response that is there; then issues what was waiting for room.
  void process_responses() {
    if (!attached_ || broken_) return;
    bool overflow = false;
    const std::uint32_t n = view_.unconsumed(overflow);
    if (overflow) return break_device();
    for (std::uint32_t i = 0; i < n && !broken_; ++i) take_response();
    if (broken_) return;
    if (n > 0 && view_.outstanding() == 0) setup_.marks->let_go(setup_.number);
    if (backlog_) continue_backlog();
    if (n > 0) publish_gauges();
  }

  // ---- waiting (ring_waiter.hpp) ----

  [[nodiscard]] bool has_responses() const {
    bool overflow = false;
    return attached_ && !broken_ && (view_.unconsumed(overflow) > 0 || overflow);
  }
  // The backlog waits for what other queues hold: no response of this ring will end that.
  [[nodiscard]] bool starved() const { return backlog_.has_value() && view_.outstanding() == 0; }
  // Going to sleep: asks one event for up to `holdoff` responses. Returns for how many; 0: there are responses, do not
  // sleep.
  [[nodiscard]] std::uint32_t arm(std::uint32_t holdoff) {
    if (!attached_ || broken_) return 1;
    events_deferred_ = false;
    if (view_.final_check(holdoff)) return 0;
    return std::max(1u, std::min(holdoff, view_.owed()));
  }
  // Once is enough until the next arm(): the wanted event stays behind whatever the backend publishes. Not writing it
  // again spares the cache line that both ends poll.
  void defer_events() {
    if (!attached_ || broken_ || std::exchange(events_deferred_, true)) return;
    view_.defer_events();
  }
  // For a poller without the lock: the index to compare with, and the comparison.
  [[nodiscard]] const std::uint32_t* response_index() const { return view_.response_index(); }
  [[nodiscard]] std::uint32_t consumed() const { return view_.consumed(); }

  [[nodiscard]] QueueCounters& counters() { return counters_; }
  typename Env::Mutex& mutex() { return mutex_; }
  bool has_leader = false;             // somebody sleeps on the event channel or polls for it
  bool polled = false;                 // the leader reads the ring's index without the lock at this moment
  std::vector<Mailbox<P>*> mailboxes;  // of the channels on this ring

  void publish_gauges() {
    const std::uint32_t kept = setup_.reports_pools ? path_.kept_granted() : 0;
    const std::uint32_t lent = path_.grants_held() + (setup_.reports_pools ? path_.lent_by_pool() : 0);
    counters_.set(Gauge::requests_in_flight, attached_ ? view_.outstanding() : 0);
    counters_.set(Gauge::persistent_cached, kept);
    counters_.set(Gauge::grants_in_use, kept + lent + (attached_ ? setup_.pages : 0));
  }

 private:
  static const inline tl::unexpected<Error> kRingFull = fail(EAGAIN, "no room yet");  // short: no allocation

  // ---- the I/O that waits for room ----

  // The rest of the one I/O that waits for room. Without an error so far, that is: else what was sent of it is all.
  void continue_backlog() {
    IoState<Mailbox<P>>& io = flight_.io(*backlog_);
    if (io.error == 0) {
      const Progress progress = sender_.advance(*backlog_);
      commit();
      if (progress == Progress::waits) return;
      if (progress == Progress::never) io.error = ENOMEM;
    }
    io.fully_issued = true;
    const std::uint32_t index = *std::exchange(backlog_, std::nullopt);
    if (io.requests == 0) complete(index);
  }

  // ---- from responses to completions ----

  // The backend is not trusted either (XSA-155 frontend part, 2021 hardening): an id that is not in flight, or another
  // operation than asked, ends the device.
  void take_response() {
    const auto response =
        blkif::decode_response(platform::Untrusted<blkif::RawResponse>(view_.next_response()).fetch());
    RequestState* const request = flight_.find(response.id);
    if (request == nullptr || request->op != response.op) return break_device();
    int error = error_of(response.status);
    if (error == EOPNOTSUPP) withdraw_feature(*request);
    if (error == 0) deliver(*request);
    const bool ended = path_.close(flight_.data_pages(*request));
    if (!ended) error = EIO;
    if (request->indirect) path_.close_indirect(flight_.indirect_page(*request));
    counters_.add(error == 0 ? Counter::responses_ok : Counter::responses_error);
    flight_.end_request(*request);
    finish_request(request->io, error);
    if (!ended) break_device();
  }

  static int error_of(blkif::ResponseStatus status) {
    if (status == blkif::ResponseStatus::okay) return 0;
    return status == blkif::ResponseStatus::not_supported ? EOPNOTSUPP : EIO;
  }

  // Linux blkfront does so, too, but reports the flush as done; here its caller is told the truth.
  void withdraw_feature(const RequestState& request) {
    switch (request.op) {
      case blkif::Op::flush_diskcache:
        return setup_.features->withdraw(Feature::flush);
      case blkif::Op::write_barrier:
        return setup_.features->withdraw(Feature::barrier);
      case blkif::Op::discard:
        setup_.features->withdraw(Feature::discard_secure);
        if (!request.secure) setup_.features->withdraw(Feature::discard);
        return;
      default:
        return;
    }
  }

  void deliver(const RequestState& request) {
    const bool read = request.op == blkif::Op::read;
    if (request.bytes > 0) counters_.add(read ? Counter::read_bytes : Counter::write_bytes, request.bytes);
    if (read && flight_.io(request.io).owner != nullptr) {
      path_.deliver(request.buffer, request.bytes, flight_.data_pages(request));
    }
  }

  void finish_request(std::uint32_t index, int error) {
    IoState<Mailbox<P>>& io = flight_.io(index);
    if (error != 0 && io.error == 0) io.error = error;
    --io.requests;
    if (io.requests == 0 && io.fully_issued) complete(index);
  }

  void complete(std::uint32_t index) {
    const IoState<Mailbox<P>>& io = flight_.io(index);
    if (io.owner != nullptr) io.owner->deliver({io.io.cookie, io.error});
    flight_.end_io(index);
  }

  // ---- the end ----

  // The backend lied: no more I/O, everything in flight fails.
  void break_device() {
    if (std::exchange(broken_, true)) return;
    fail_in_flight(EIO);
  }

  // Pages of what gets no response are not reused, as the backend may still write to them.
  void fail_in_flight(int error) {
    if (!attached_) return;
    flight_.for_each_request([&](RequestState& request) {
      path_.abandon(flight_.data_pages(request));
      if (request.indirect) path_.abandon_indirect(flight_.indirect_page(request));
      flight_.end_request(request);
      finish_request(request.io, error);
    });
    if (backlog_) {
      const std::uint32_t index = *std::exchange(backlog_, std::nullopt);
      if (flight_.io(index).error == 0) flight_.io(index).error = error;
      complete(index);
    }
    setup_.marks->let_go(setup_.number);
  }

  typename Env::Mutex mutex_;
  typename P::Front& hypervisor_;
  QueueCounters& counters_;
  RingSetup setup_;
  DataPath<P> path_;
  platform::FrontView view_;
  InFlight<Mailbox<P>> flight_;
  RequestSender<P> sender_;
  std::optional<std::uint32_t> backlog_;  // the I/O that waits for room
  bool attached_ = false;
  bool broken_ = false;
  bool quiescing_ = false;
  bool gone_ = false;
  bool events_deferred_ = false;
};

}  // namespace xblk::blkfront
