// The backend's ring worker body: take requests, reach their pages, give them to the store, answer. One step() is one
// dispatch round; it never blocks and never starts a thread (architecture, decision 8).
//
// A round, in order:
//   1. reap the store: finished operations release their pages and become responses
//   2. consume up to `budget` requests: copy out of the ring once, validate, acquire pages
//   3. submit what was prepared as one batch, reap again (memory stores have finished by now)
//   4. push all responses at once, with at most one notification
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "drivers/base/check.hpp"
#include "drivers/base/counters.hpp"
#include "drivers/blkback/barrier_gate.hpp"
#include "drivers/blkback/granted_pages.hpp"
#include "drivers/blkback/page_options.hpp"
#include "drivers/blkback/pools.hpp"
#include "drivers/blkback/ring_step.hpp"
#include "drivers/blkif/policy.hpp"
#include "drivers/blkif/request.hpp"
#include "drivers/blkif/wire.hpp"
#include "drivers/platform/concepts.hpp"
#include "drivers/platform/shared_ring.hpp"
#include "drivers/platform/untrusted.hpp"
#include "drivers/store/store.hpp"

namespace xblk::blkback {

// What a connected ring is made of; everything outlives the ring.
struct RingConfig {
  DomId frontend{};
  blkif::Abi abi = blkif::kNativeAbi;
  std::byte* shared = nullptr;  // the mapped ring pages
  std::uint32_t slots = 0;
  EventPort port{};
  blkif::DeviceLimits limits;
  PageOptions pages;
  bool adaptive_polling = true;
  bool reports_pools = true;
  blkif::FinalCheck final_check = blkif::FinalCheck::dispatch;
  std::uint32_t holdoff = 1;    // requests to ask one event for, at most `slots`
  Nanos holdoff_limit{};        // ... within this time
  std::size_t number = 0;       // of the ring in its device
  BarrierGate* gate = nullptr;  // shared with the device's other rings; null: there are none, or no barriers
};

template <platform::Platform P>
class Ring final : public RingStep {
 public:
  using Env = typename P::Env;

  Ring(typename P::Back& hypervisor, const RingConfig& config, Pools<Env>& pools, store::Queue& store,
       QueueCounters& counters)
      : hypervisor_(hypervisor),
        config_(config),
        view_(config.shared, config.abi, config.slots),
        pages_(hypervisor, {config.frontend, config.pages, config.reports_pools}, pools, counters),
        store_(store),
        counters_(counters),
        slots_(config.slots),
        capacity_(config.limits.capacity.value()),
        capacity_errors_before_(counters.get(Counter::map_capacity_errors)) {
    for (std::uint32_t i = config.slots; i-- > 0;) free_slots_.push_back(i);
    batch_.reserve(config.slots);
  }

  // False: the ring's indexes contradict each other already (pre-poisoned ring); the connect fails with EIO.
  [[nodiscard]] bool attach() { return view_.attach(); }

  StepResult step(unsigned budget) override {
    finished_in_step_ = 0;
    reap_store();
    if (halted()) return {};
    config_.limits.capacity = Sectors(capacity_.load(std::memory_order_relaxed));
    const unsigned consumed = may_take() ? consume(budget) : 0;
    do {  // a barrier's parts follow one another
      flush_batch();
      reap_store();
      advance_barrier();
    } while (!batch_.empty());
    push_responses();
    if (config_.gate != nullptr && config_.gate->closed_by_another(config_.number)) leave_gate();
    if (consumed > 0) counters_.add(Counter::batches);
    return {consumed, consumed > 0 || finished_in_step_ > 0};
  }

  std::optional<Instant> arm(Instant now) override {
    leave_gate();
    const Instant maintenance = pages_.maintain(now) ? now : pages_.next_maintenance();
    // What ends a barrier, the gate, and (with final-check=response) the responses to what is in flight step us again.
    const bool others_will_look = halted() || barrier_ != Barrier::none ||
                                  (config_.final_check == blkif::FinalCheck::response && in_flight_ > 0) ||
                                  (config_.gate != nullptr && config_.gate->closed_by_another(config_.number));
    if (others_will_look) return maintenance;
    const Instant look_again = hold_off(now);
    bool overflow = false;
    const bool pushed = view_.final_check(look_again == Instant::never() ? 1 : config_.holdoff);
    if (pushed && (view_.unconsumed(overflow) > 0 || overflow)) return std::nullopt;
    return std::min(look_again, maintenance);
  }
  void maintain(Instant now) override { pages_.maintain(now); }
  void defer_events() override {
    if (!halted()) view_.defer_events();
  }

  // The event is acknowledged before the ring is looked at, so that one arriving in between is not lost.
  void take_event() override {
    if (!hypervisor_.consume(config_.port)) return;
    counters_.add(Counter::events_received);
    kicked_ = true;
    held_until_ = Instant::never();
  }
  void count_poll() override { counters_.add(Counter::polls); }
  void count_spurious_event() override { counters_.add(Counter::events_spurious); }
  void add_cpu(std::uint64_t ns) override { counters_.add(Counter::worker_cpu_ns, ns); }

  [[nodiscard]] bool wants_polling() const override { return config_.adaptive_polling && !halted(); }
  [[nodiscard]] bool idle() const override { return in_flight_ == 0; }
  // The frontend broke the ring: nothing more is taken from it. Any thread.
  [[nodiscard]] bool halted() const { return halted_.load(std::memory_order_relaxed); }
  // Since it was attached. Any thread.
  [[nodiscard]] bool short_of_mappings() const {
    return counters_.get(Counter::map_capacity_errors) != capacity_errors_before_;
  }
  // Live resize; requests taken from now on are held against it. Any thread.
  void set_capacity(Sectors capacity) { capacity_.store(capacity.value(), std::memory_order_relaxed); }
  [[nodiscard]] EventPort port() const { return config_.port; }

  // For the device at disconnect, after the last step: waits for nothing, since the store is drained by step() first.
  void drop_pools() { pages_.drop_pools(); }
  void publish_gauges() {
    counters_.set(Gauge::requests_in_flight, in_flight_);
    pages_.publish_gauges();
  }

 private:
  // One request between its consumption and its response.
  struct Slot {
    std::uint64_t id = 0;
    blkif::Op op = blkif::Op::read;
    std::uint64_t bytes = 0;
    HeldPages held;
  };

  // What a barrier still needs: the drain, then three operations of the store, each after the end of the one before.
  enum class Barrier : std::uint8_t { none, draining, flushing_before, writing, flushing_after };

  // ---- which requests are taken, and when ----

  [[nodiscard]] bool may_take() {
    if (barrier_ != Barrier::none) return false;
    if (config_.final_check == blkif::FinalCheck::response && !response_check_looks()) return false;
    if (config_.gate == nullptr) return true;
    if (in_gate_) return !config_.gate->closed_by_another(config_.number);
    bool overflow = false;
    if (view_.unconsumed(overflow) == 0 && !overflow) return false;
    in_gate_ = config_.gate->enter(config_.number);
    return in_gate_;
  }

  // Seed 001, as it was: while requests are in flight, only an event or a response of ours has us look at the ring, and
  // the frontend sends no event, as none was asked for.
  [[nodiscard]] bool response_check_looks() {
    const bool looks = std::exchange(kicked_, false) || in_flight_ == 0 || finished_in_step_ > 0;
    bool overflow = false;
    if (!looks && view_.unconsumed(overflow) > 0) counters_.add(Counter::requests_deferred);
    return looks;
  }

  void leave_gate() {
    const std::uint32_t waiting = barrier_ == Barrier::draining ? 1 : 0;
    if (!in_gate_ || in_flight_ > waiting) return;
    in_gate_ = false;
    config_.gate->leave(config_.number);
  }

  unsigned consume(unsigned budget) {
    bool overflow = false;
    const std::uint32_t available = view_.unconsumed(overflow);
    if (overflow) {
      halt();
      return 0;
    }
    const unsigned n = std::min({static_cast<unsigned>(available), budget, static_cast<unsigned>(free_slots_.size())});
    unsigned taken = 0;
    for (; taken < n && barrier_ == Barrier::none; ++taken) consume_one();
    taken_since_armed_ |= taken > 0;
    if (taken < available) kicked_ = true;  // the budget ended the round, not the ring
    return taken;
  }

  // Until when the ring sleeps with one event asked for several requests; never(): it does not, or not any more. A
  // hold-off starts after requests were taken, so that an idle ring ends with an event asked for the next request, and
  // no time limit.
  Instant hold_off(Instant now) {
    if (config_.holdoff <= 1) return Instant::never();
    if (held_until_ != Instant::never() && now >= held_until_) {
      counters_.add(Counter::holdoff_timeouts);
      held_until_ = Instant::never();
    }
    if (std::exchange(taken_since_armed_, false) && held_until_ == Instant::never()) {
      counters_.add(Counter::events_held_off);
      held_until_ = now + config_.holdoff_limit;
    }
    return held_until_;
  }

  // ---- one request ----

  void consume_one() {
    const auto raw = platform::Untrusted<blkif::RawRequest>(view_.next_request()).fetch();
    counters_.add(Counter::requests);
    ++in_flight_;
    const auto parsed = blkif::parse_request(config_.abi, raw, config_.limits);
    if (!parsed) {
      refuse({blkif::request_id(config_.abi, raw), blkif::request_response_op(raw)}, parsed.error());
      return;
    }
    const blkif::Request& request = *parsed;
    std::span<const blkif::Segment> segments;
    if (const auto malformed = load_segments(request, segments)) {
      refuse({request.id, blkif::request_response_op(raw)}, *malformed);
      return;
    }
    start(request, segments);
  }

  // Direct segments are in the request; indirect ones are fetched, once, from the frontend's pages.
  [[nodiscard]] std::optional<blkif::Malformed> load_segments(const blkif::Request& request,
                                                              std::span<const blkif::Segment>& segments) {
    if (!request.indirect) {
      segments = request.direct_segments();
    } else {
      counters_.add(Counter::requests_indirect);
      indirect_segments_.resize(request.segment_count);
      for (std::size_t page = 0, done = 0; done < request.segment_count; ++page) {
        const std::size_t n = std::min<std::size_t>(blkif::kSegmentsPerIndirectPage, request.segment_count - done);
        if (!pages_.fetch_page(request.indirect_grefs[page], indirect_page_)) return blkif::Malformed::segment_range;
        blkif::decode_indirect_page(indirect_page_, std::span(indirect_segments_).subspan(done, n));
        done += n;
      }
      segments = indirect_segments_;
    }
    return blkif::validate_segments(request, segments, config_.limits);
  }

  void start(const blkif::Request& request, std::span<const blkif::Segment> segments) {
    const std::uint32_t index = free_slots_.back();
    Slot& slot = slots_[index];
    slot.id = request.id;
    slot.op = request.op;
    slot.bytes = 0;
    store::Operation work;
    work.op = store_op(request.op);
    work.sector = request.sector;
    work.cookie = index;
    count_request(request.op, segments.size());
    if (request.op == blkif::Op::discard) {
      work.count = request.discard_sectors;
      work.secure = request.discard_secure;
    } else if (!segments.empty()) {
      if (!pages_.acquire(segments, request.op == blkif::Op::read, slot.held)) {
        respond({slot.id, slot.op, blkif::ResponseStatus::error});
        return;
      }
      work.count = blkif::transfer_length(segments);
      work.pieces = slot.held.pieces();
      slot.bytes = to_bytes(work.count).value();
    }
    free_slots_.pop_back();
    if (request.op == blkif::Op::write_barrier) {
      barrier_ = Barrier::draining;
      barrier_write_ = work;
      return;
    }
    batch_.push_back(work);
  }

  // ---- barriers ----

  // Takes the barrier to its next operation, when the one before has ended. In flight besides it is nothing then.
  void advance_barrier() {
    if (barrier_ != Barrier::draining || in_flight_ > 1) return;
    if (config_.gate != nullptr) {
      if (config_.gate->aborted()) return end_barrier(EIO);
      leave_gate();
      if (!config_.gate->close_and_drained(config_.number)) return;
    }
    counters_.add(Counter::barrier_drains);
    barrier_ = Barrier::flushing_before;
    batch_.push_back({.op = store::Op::flush, .cookie = barrier_write_.cookie});
  }

  void barrier_operation_finished(int error) {
    if (error != 0) return end_barrier(error);
    switch (barrier_) {
      case Barrier::flushing_before:
        barrier_ = Barrier::writing;
        if (!barrier_write_.pieces.empty()) {
          batch_.push_back(barrier_write_);
          return;
        }
        return barrier_operation_finished(0);  // an empty barrier only orders and flushes
      case Barrier::writing:
        // Without data the first flush has made everything durable already.
        if (barrier_write_.pieces.empty()) return end_barrier(0);
        barrier_ = Barrier::flushing_after;
        batch_.push_back({.op = store::Op::flush, .cookie = barrier_write_.cookie});
        return;
      case Barrier::flushing_after:
        return end_barrier(0);
      case Barrier::none:
      case Barrier::draining:
        XBLK_CHECK(false, "a barrier that drains has no operation at the store");
    }
  }

  void end_barrier(int error) {
    const bool closed = std::exchange(barrier_, Barrier::none) != Barrier::draining;
    end_request({barrier_write_.cookie, error});
    kicked_ = true;
    if (config_.gate != nullptr && closed) config_.gate->open();
  }

  // ---- the store ----

  void flush_batch() {
    if (batch_.empty()) return;
    store_.submit(batch_);
    batch_.clear();
  }

  void reap_store() {
    std::array<store::Finished, 64> finished;
    unsigned n = 0;
    do {
      n = store_.reap(finished);
      for (unsigned i = 0; i < n; ++i) complete(finished[i]);
      finished_in_step_ += n;
    } while (n == finished.size());
  }

  void complete(const store::Finished& finished) {
    if (barrier_ > Barrier::draining && finished.cookie == barrier_write_.cookie) {
      return barrier_operation_finished(finished.error);
    }
    end_request(finished);
  }

  void end_request(const store::Finished& finished) {
    Slot& slot = slots_[finished.cookie];
    const bool read = slot.op == blkif::Op::read;
    const bool delivered = pages_.release(read && finished.error == 0, slot.held);
    if (finished.error != 0) counters_.add(Counter::store_errors);
    const bool ok = finished.error == 0 && delivered;
    if (ok) counters_.add(read ? Counter::read_bytes : Counter::write_bytes, slot.bytes);
    free_slots_.push_back(static_cast<std::uint32_t>(finished.cookie));
    respond({slot.id, slot.op, ok ? blkif::ResponseStatus::okay : status_of(finished.error)});
  }

  static blkif::ResponseStatus status_of(int error) {
    return error == EOPNOTSUPP ? blkif::ResponseStatus::not_supported : blkif::ResponseStatus::error;
  }

  void refuse(blkif::Response response, blkif::Malformed why) {
    counters_.add(Counter::requests_malformed);
    response.status = blkif::response_for(why);
    respond(response);
  }

  // Exactly one response per request; all 64 bits of the id come back (Windows puts a pointer there), and no byte of
  // the slot is left as the stack had it (XSA-216).
  void respond(const blkif::Response& response) {
    const auto raw = blkif::encode_response(response);
    platform::copy_to_shared(view_.next_response(), raw.bytes.data(), blkif::response_size(config_.abi));
    counters_.add(response.status == blkif::ResponseStatus::okay ? Counter::responses_ok : Counter::responses_error);
    --in_flight_;
  }

  void push_responses() {
    if (!view_.has_unpushed()) return;
    pages_.flush_unmaps();  // a frontend that sees a response ends access to its pages (XSA-396)
    if (view_.push()) {
      hypervisor_.notify(config_.port);
      counters_.add(Counter::notifications_sent);
    } else {
      counters_.add(Counter::notifications_suppressed);
    }
    publish_gauges();
  }

  // A frontend whose req_prod runs ahead of the ring is broken or hostile: the ring stops, the device's life cycle goes
  // on.
  void halt() {
    halted_.store(true, std::memory_order_relaxed);
    hypervisor_.mask(config_.port);  // or it would go on waking the worker, for nothing (XSA-332)
    counters_.add(Counter::requests_malformed);
  }

  static store::Op store_op(blkif::Op op) {
    switch (op) {
      case blkif::Op::read:
        return store::Op::read;
      case blkif::Op::flush_diskcache:
        return store::Op::flush;
      case blkif::Op::discard:
        return store::Op::discard;
      default:
        return store::Op::write;
    }
  }

  void count_request(blkif::Op op, std::size_t segments) {
    counters_.add(Counter::segments, segments);
    switch (op) {
      case blkif::Op::read:
        counters_.add(Counter::requests_read);
        break;
      case blkif::Op::flush_diskcache:
      case blkif::Op::write_barrier:
        counters_.add(Counter::requests_flush);
        break;
      case blkif::Op::discard:
        counters_.add(Counter::requests_discard);
        break;
      default:
        counters_.add(Counter::requests_write);
        break;
    }
  }

  typename P::Back& hypervisor_;
  RingConfig config_;
  platform::BackView view_;
  GrantedPages<P> pages_;
  store::Queue& store_;
  QueueCounters& counters_;
  std::vector<Slot> slots_;
  std::vector<std::uint32_t> free_slots_;
  std::vector<store::Operation> batch_;
  std::vector<blkif::Segment> indirect_segments_;
  std::array<std::byte, kPageSize> indirect_page_;
  std::uint32_t in_flight_ = 0;
  unsigned finished_in_step_ = 0;
  std::atomic<bool> halted_{false};
  std::atomic<std::uint64_t> capacity_;         // sectors
  const std::uint64_t capacity_errors_before_;  // what the queue's counter held when the ring was made
  bool kicked_ = true;  // something said that there are requests: an event, a response, a full budget
  bool taken_since_armed_ = false;
  Instant held_until_ = Instant::never();
  bool in_gate_ = false;
  Barrier barrier_ = Barrier::none;
  store::Operation barrier_write_;
};

}  // namespace xblk::blkback
