// One queue of the frontend: I/Os in, ring requests out, responses back to the channel that asked.
//
// Everything here runs under the ring's lock. Several channels (threads) may share a ring; whoever holds the lock may
// process responses, and routes each completion to the channel that owns it.
//
// An I/O may need more requests than fit; what does not fit yet waits in `backlog_` and is issued as responses free
// slots.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <deque>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "drivers/base/check.hpp"
#include "drivers/base/counters.hpp"
#include "drivers/blkfront/block_device.hpp"
#include "drivers/blkfront/grant_pool.hpp"
#include "drivers/blkif/request.hpp"
#include "drivers/blkif/ring_layout.hpp"
#include "drivers/blkif/wire.hpp"
#include "drivers/platform/concepts.hpp"
#include "drivers/platform/shared_ring.hpp"
#include "drivers/platform/untrusted.hpp"

namespace xblk::blkfront {

// What the ring knows of a channel: where completions go and whether somebody sleeps there.
template <class P>
struct Mailbox {
  explicit Mailbox(typename P::Env& env) : signal(env) {}
  std::deque<Completion> ready;
  std::atomic<bool> waiting{false};  // a channel that moves is briefly seen from two rings, each with its own lock
  typename P::Env::Signal signal;
};

struct RingSetup {
  DomId backend{};
  std::byte* shared = nullptr;
  std::uint32_t slots = 0;
  EventPort port{};
  bool persistent = false;
  bool reports_pool = true;  // of rings that share a per-device pool, the first one reports its size
  std::uint32_t segments_max = blkif::kDirectSegmentsMax;  // per request; above 11 requests are indirect
  DeviceInfo device;                                       // what I/Os are checked against
};

template <class P>
class Ring {
 public:
  using Env = typename P::Env;

  Ring(Env& env, typename P::Front& hypervisor, QueueCounters& counters)
      : mutex_(env), hypervisor_(hypervisor), counters_(counters) {}

  // ---- life cycle (the device's control thread) ----

  void attach(const RingSetup& setup, std::shared_ptr<GrantPool<P>> pool) {
    setup_ = setup;
    pool_ = std::move(pool);
    view_ = platform::FrontView(setup.shared, blkif::kNativeAbi, setup.slots);
    shadows_ = std::vector<Shadow>(setup.slots);
    free_shadows_.clear();
    for (std::uint32_t i = setup.slots; i-- > 0;) free_shadows_.push_back(i);
    attached_ = true;
    quiescing_ = false;
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
    pool_.reset();
    publish_gauges();
  }

  // Live resize: I/O beyond the new end is refused from now on.
  void set_capacity(Sectors capacity) { setup_.device.capacity = capacity; }

  [[nodiscard]] const DeviceInfo& device() const { return setup_.device; }
  [[nodiscard]] bool attached() const { return attached_; }
  [[nodiscard]] bool broken() const { return broken_; }
  [[nodiscard]] std::uint32_t in_flight() const { return live_ios_; }
  [[nodiscard]] EventPort port() const { return setup_.port; }

  // The owner goes away with I/O in flight: its completions go nowhere and its buffers are not touched any more.
  void disown(const Mailbox<P>& owner) {
    for (IoState& state : ios_) {
      if (state.owner == &owner) state.owner = nullptr;
    }
    std::erase(mailboxes, &owner);
  }

  // ---- data path ----

  // EAGAIN when the ring, the pool or the table of I/Os is full. `io` has been validated by the device.
  [[nodiscard]] Status submit(const Io& io, Mailbox<P>& owner) {
    if (broken_) return fail(ENODEV, "the backend broke the protocol");
    if (gone_) return fail(ENODEV, "the backend is gone");
    if (!attached_ || quiescing_) return fail(EAGAIN, "reconnecting");
    if (!backlog_.empty() || free_shadows_.empty()) {
      counters_.add(Counter::ring_full_stalls);
      return kRingFull;
    }
    const std::uint32_t index = new_io(io, owner);
    if (!issue(index)) {
      if (ios_[index].requests == 0) {  // not even one request fitted: as if never submitted
        free_ios_.push_back(index);
        --live_ios_;
        counters_.add(Counter::ring_full_stalls);
        if (view_.outstanding() == 0 && pool_->exclusive()) {
          return fail(
              ENOMEM,
              "no grantable memory or grant entries for one request; raise max_grant_frames or the guest's memory");
        }
        return kRingFull;
      }
      backlog_.push_back(index);
    }
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
    std::uint32_t n = view_.unconsumed(overflow);
    if (overflow) return break_device();
    if (n == 0 && backlog_.empty()) return;
    for (; n > 0 && !broken_; --n) take_response();
    if (broken_) return;
    while (!backlog_.empty() && issue(backlog_.front())) backlog_.pop_front();
    commit();
  }

  [[nodiscard]] bool has_responses() const {
    bool overflow = false;
    return attached_ && !broken_ && (view_.unconsumed(overflow) > 0 || overflow);
  }
  // Going to sleep: asks for an event. False: there are responses, do not sleep.
  [[nodiscard]] bool arm() { return !attached_ || broken_ || !view_.final_check(); }
  void defer_events() {
    if (attached_ && !broken_) view_.defer_events();
  }
  // For a poller without the lock: the index to compare with, and the comparison.
  [[nodiscard]] const std::uint32_t* response_index() const { return view_.response_index(); }
  [[nodiscard]] std::uint32_t consumed() const { return view_.consumed(); }

  void count_event(bool found_work) {
    counters_.add(Counter::events_received);
    if (!found_work) counters_.add(Counter::events_spurious);
  }
  void count_polls(std::uint64_t turns) { counters_.add(Counter::polls, turns); }
  void count_ring_lock(const platform::LockWait& wait) {
    if (wait.contended == 0) return;
    counters_.add(Counter::ring_lock_wait_ns, wait.wait_ns);
    counters_.add(Counter::ring_lock_contended, wait.contended);
  }

  typename Env::Mutex& mutex() { return mutex_; }
  bool has_leader = false;             // somebody sleeps on the event channel or polls for it
  bool polled = false;                 // the leader reads the ring's index without the lock at this moment
  std::vector<Mailbox<P>*> mailboxes;  // of the channels on this ring

  void publish_gauges() {
    counters_.set(Gauge::requests_in_flight, attached_ ? view_.outstanding() : 0);
    counters_.set(Gauge::grants_in_use, grants_in_use_);
    counters_.set(Gauge::persistent_cached, pool_ == nullptr || !setup_.reports_pool ? 0 : pool_->granted());
  }

 private:
  // One I/O of a caller.
  struct IoState {
    Io io;
    Mailbox<P>* owner = nullptr;
    Sectors issued{};            // how much of it has become requests
    std::uint32_t requests = 0;  // in flight
    bool fully_issued = false;
    int error = 0;
  };

  // One ring request: what its response gives back.
  struct Shadow {
    std::uint64_t id = 0;  // 0: not in flight
    std::uint32_t io = 0;
    blkif::Op op = blkif::Op::read;
    std::byte* buffer = nullptr;  // of the caller, where this request's data starts
    std::uint64_t bytes = 0;
    std::vector<GrantedPage> pages;  // persistent: bounce pages, in order; then the indirect page
    std::vector<GrantRef> grants;    // non-persistent: to be ended
    std::vector<GrantedPage> indirect_pages;
  };

  void count_pool_lock(const platform::LockWait& wait) {
    if (wait.contended == 0) return;
    counters_.add(Counter::pool_lock_wait_ns, wait.wait_ns);
    counters_.add(Counter::pool_lock_contended, wait.contended);
  }

  static const inline tl::unexpected<Error> kRingFull = fail(EAGAIN, "ring or grant pool full");

  std::uint32_t new_io(const Io& io, Mailbox<P>& owner) {
    if (free_ios_.empty()) {
      free_ios_.push_back(static_cast<std::uint32_t>(ios_.size()));
      ios_.emplace_back();
    }
    const std::uint32_t index = free_ios_.back();
    free_ios_.pop_back();
    ios_[index] = {io, &owner, Sectors(0), 0, false, 0};
    ++live_ios_;
    return index;
  }

  // Turns as much of the I/O into requests as fits; true when all of it has been.
  bool issue(std::uint32_t index) {
    for (;;) {
      IoState& state = ios_[index];
      if (free_shadows_.empty()) return false;
      const bool done =
          state.io.op == IoOp::read || state.io.op == IoOp::write ? issue_transfer(index) : issue_command(index);
      if (!done) return false;
      if (state.fully_issued) return true;
    }
  }

  [[nodiscard]] bool issue_command(std::uint32_t index) {
    IoState& state = ios_[index];
    blkif::Request request;
    request.op = state.io.op == IoOp::flush ? blkif::Op::flush_diskcache : blkif::Op::discard;
    request.sector = state.io.sector;
    request.discard_sectors = state.io.count;
    Shadow& shadow = new_shadow(request, index);
    shadow.bytes = 0;
    state.fully_issued = true;
    counters_.add(state.io.op == IoOp::flush ? Counter::requests_flush : Counter::requests_discard);
    send(request, {});
    return true;
  }

  // One read or write request of at most segments_max segments.
  [[nodiscard]] bool issue_transfer(std::uint32_t index) {
    IoState& state = ios_[index];
    std::byte* buffer = state.io.buffer + to_bytes(state.issued).value();
    const std::uint64_t left = to_bytes(state.io.count - state.issued).value();
    blkif::Request request;
    request.op = state.io.op == IoOp::read ? blkif::Op::read : blkif::Op::write;
    request.sector = state.io.sector + state.issued;
    Shadow& shadow = shadows_[free_shadows_.back()];
    shadow.buffer = buffer;
    segments_.clear();
    const std::uint64_t bytes =
        setup_.persistent ? bounce(request.op, buffer, left, shadow) : grant_buffer(request.op, buffer, left, shadow);
    if (bytes == 0 || !prepare_indirect(request, shadow)) {
      undo(shadow);
      return false;
    }
    shadow.bytes = bytes;
    new_shadow(request, index);
    state.issued += Sectors(bytes / kSectorSize);
    state.fully_issued = state.issued == state.io.count;
    counters_.add(request.op == blkif::Op::read ? Counter::requests_read : Counter::requests_write);
    counters_.add(Counter::segments, segments_.size());
    send(request, segments_);
    return true;
  }

  // Persistent: the data goes through pool pages, packed from their start whatever the buffer's alignment.
  std::uint64_t bounce(blkif::Op op, const std::byte* buffer, std::uint64_t left, Shadow& shadow) {
    const std::uint64_t bytes = std::min<std::uint64_t>(left, std::uint64_t{setup_.segments_max} * kPageSize);
    const auto pages = static_cast<std::uint32_t>((bytes + kPageSize - 1) / kPageSize);
    platform::LockWait wait;
    const bool enough = pool_->take(pages, shadow.pages, wait);
    count_pool_lock(wait);
    if (!enough) return 0;
    std::uint64_t done = 0;
    for (const auto& page : shadow.pages) {
      const std::uint64_t n = std::min<std::uint64_t>(kPageSize, bytes - done);
      if (op == blkif::Op::write) std::memcpy(page.address, buffer + done, n);
      segments_.push_back({page.gref, 0, static_cast<std::uint8_t>(n / kSectorSize - 1)});
      done += n;
    }
    if (op == blkif::Op::write) counters_.add(Counter::copied_bytes, bytes);
    return bytes;
  }

  // Not persistent: the caller's own pages are granted for the time of the request.
  std::uint64_t grant_buffer(blkif::Op op, std::byte* buffer, std::uint64_t left, Shadow& shadow) {
    const auto access = op == blkif::Op::write ? platform::Access::read_only : platform::Access::read_write;
    std::uint64_t done = 0;
    while (done < left && segments_.size() < setup_.segments_max) {
      const std::size_t offset = reinterpret_cast<std::uintptr_t>(buffer + done) % kPageSize;
      const std::uint64_t n = std::min<std::uint64_t>(kPageSize - offset, left - done);
      const auto frame = hypervisor_.frame_of(buffer + done - offset);
      XBLK_CHECK(frame.has_value(), "the device accepted the buffer");
      auto gref = hypervisor_.grant(setup_.backend, *frame, access);
      if (!gref) return 0;
      shadow.grants.push_back(*gref);
      ++grants_in_use_;
      counters_.add(Counter::grants_issued);
      segments_.push_back({*gref, static_cast<std::uint8_t>(offset / kSectorSize),
                           static_cast<std::uint8_t>((offset + n) / kSectorSize - 1)});
      done += n;
    }
    return done;
  }

  // More than 11 segments travel in granted pages of their own. They come from the pool even when data pages do not.
  [[nodiscard]] bool prepare_indirect(blkif::Request& request, Shadow& shadow) {
    request.segment_count = static_cast<std::uint16_t>(segments_.size());
    request.indirect = segments_.size() > blkif::kDirectSegmentsMax;
    if (!request.indirect) return true;
    const auto pages = static_cast<std::uint32_t>(blkif::indirect_pages(segments_.size()));
    platform::LockWait wait;
    const bool enough = pool_->take(pages, shadow.indirect_pages, wait);
    count_pool_lock(wait);
    if (!enough) return false;
    request.indirect_page_count = static_cast<std::uint8_t>(pages);
    for (std::uint32_t p = 0; p < pages; ++p) {
      request.indirect_grefs[p] = shadow.indirect_pages[p].gref;
      const auto part = std::span<const blkif::Segment>(segments_).subspan(p * blkif::kSegmentsPerIndirectPage);
      blkif::encode_indirect_page(part.first(std::min(part.size(), blkif::kSegmentsPerIndirectPage)),
                                  std::span<std::byte, kPageSize>(shadow.indirect_pages[p].address, kPageSize));
    }
    counters_.add(Counter::requests_indirect);
    return true;
  }

  Shadow& new_shadow(blkif::Request& request, std::uint32_t io) {
    const std::uint32_t slot = free_shadows_.back();
    free_shadows_.pop_back();
    Shadow& shadow = shadows_[slot];
    // The upper bits are a sequence number, so that a response that comes twice, or late, matches nothing.
    shadow.id = (++sequence_ << 16) | slot;
    shadow.io = io;
    shadow.op = request.op;
    request.id = shadow.id;
    ++ios_[io].requests;
    return shadow;
  }

  void send(const blkif::Request& request, std::span<const blkif::Segment> segments) {
    const auto raw = blkif::encode_request(blkif::kNativeAbi, request, segments);
    platform::copy_to_shared(view_.next_request(), raw.bytes.data(), raw.bytes.size());
    counters_.add(Counter::requests);
  }

  // The backend is not trusted either (XSA-155 frontend part, 2021 hardening): an id that is not in flight, or another
  // operation than asked, ends the device.
  void take_response() {
    const auto response =
        blkif::decode_response(platform::Untrusted<blkif::RawResponse>(view_.next_response()).fetch());
    const auto slot = static_cast<std::uint32_t>(response.id & 0xffff);
    if (slot >= shadows_.size() || response.id == 0 || shadows_[slot].id != response.id ||
        shadows_[slot].op != response.op) {
      return break_device();
    }
    Shadow& shadow = shadows_[slot];
    shadow.id = 0;
    free_shadows_.push_back(slot);
    int error = error_of(response.status);
    if (error == 0 && ios_[shadow.io].owner != nullptr) deliver(shadow);
    const bool ended = give_back(shadow);
    if (!ended) error = EIO;
    counters_.add(error == 0 ? Counter::responses_ok : Counter::responses_error);
    finish_request(shadow.io, error);
    if (!ended) break_device();
  }

  static int error_of(blkif::ResponseStatus status) {
    if (status == blkif::ResponseStatus::okay) return 0;
    return status == blkif::ResponseStatus::not_supported ? EOPNOTSUPP : EIO;
  }

  void deliver(const Shadow& shadow) {
    const bool read = shadow.op == blkif::Op::read;
    counters_.add(read ? Counter::read_bytes : Counter::write_bytes, shadow.bytes);
    if (!read || !setup_.persistent) return;
    std::uint64_t done = 0;
    for (const auto& page : shadow.pages) {
      const std::uint64_t n = std::min<std::uint64_t>(kPageSize, shadow.bytes - done);
      std::memcpy(shadow.buffer + done, page.address, n);
      done += n;
    }
    counters_.add(Counter::copied_bytes, shadow.bytes);
  }

  // False when the backend still maps a page of a finished request: the page cannot be trusted any more (XSA-396).
  bool give_back(Shadow& shadow) {
    bool ended = true;
    for (const GrantRef gref : shadow.grants) {
      if (hypervisor_.end_access(gref)) {
        --grants_in_use_;
        counters_.add(Counter::grants_ended);
      } else {
        abandoned_.push_back(gref);
        ended = false;
      }
    }
    undo_pages(shadow);
    shadow.grants.clear();
    return ended;
  }

  void undo(Shadow& shadow) {
    // The backend was not told of these grants, but a hostile one can guess a reference: give_back() counts on nothing.
    static_cast<void>(give_back(shadow));
  }

  void undo_pages(Shadow& shadow) {
    platform::LockWait wait;
    if (!shadow.pages.empty()) pool_->give_back(shadow.pages, wait);
    if (!shadow.indirect_pages.empty()) pool_->give_back(shadow.indirect_pages, wait);
    count_pool_lock(wait);
  }

  void finish_request(std::uint32_t index, int error) {
    IoState& state = ios_[index];
    if (error != 0 && state.error == 0) state.error = error;
    if (--state.requests > 0 || !state.fully_issued) return;
    complete(index);
  }

  void complete(std::uint32_t index) {
    IoState& state = ios_[index];
    if (state.owner != nullptr) {
      state.owner->ready.push_back({state.io.cookie, state.error});
      if (state.owner->waiting) state.owner->signal.raise();
    }
    free_ios_.push_back(index);
    --live_ios_;
  }

  // The backend lied: no more I/O, everything in flight fails. Its pages are not reused, as it may still write to them.
  void break_device() {
    if (broken_) return;
    broken_ = true;
    fail_in_flight(EIO);
  }

  void fail_in_flight(int error) {
    for (Shadow& shadow : shadows_) {
      if (shadow.id == 0) continue;
      shadow.id = 0;
      abandoned_.insert(abandoned_.end(), shadow.grants.begin(), shadow.grants.end());
      shadow.grants.clear();
      if (pool_ != nullptr) undo_pages(shadow);
      IoState& state = ios_[shadow.io];
      --state.requests;
      if (state.error == 0) state.error = error;
      if (state.requests == 0 && state.fully_issued) complete(shadow.io);
    }
    for (const std::uint32_t index : std::exchange(backlog_, {})) {
      if (ios_[index].error == 0) ios_[index].error = error;
      complete(index);
    }
  }

 public:
  // Takes back what the backend held when it was given up. Returns how many it still holds.
  std::uint32_t end_abandoned() {
    std::erase_if(abandoned_, [this](GrantRef gref) {
      if (!hypervisor_.end_access(gref)) return false;
      --grants_in_use_;
      counters_.add(Counter::grants_ended);
      return true;
    });
    return static_cast<std::uint32_t>(abandoned_.size());
  }

 private:
  typename Env::Mutex mutex_;
  typename P::Front& hypervisor_;
  QueueCounters& counters_;
  RingSetup setup_;
  std::shared_ptr<GrantPool<P>> pool_;
  platform::FrontView view_;
  bool attached_ = false;
  bool broken_ = false;
  bool quiescing_ = false;
  bool gone_ = false;
  std::uint64_t sequence_ = 0;
  std::uint64_t grants_in_use_ = 0;
  std::uint32_t live_ios_ = 0;
  std::vector<Shadow> shadows_;
  std::vector<std::uint32_t> free_shadows_;
  std::deque<IoState> ios_;
  std::vector<std::uint32_t> free_ios_;
  std::deque<std::uint32_t> backlog_;
  std::vector<GrantRef> abandoned_;
  std::vector<blkif::Segment> segments_;  // of the request being built
};

}  // namespace xblk::blkfront
