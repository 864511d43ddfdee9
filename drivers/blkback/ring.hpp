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
#include <cstdint>
#include <span>
#include <vector>

#include "drivers/base/check.hpp"
#include "drivers/base/counters.hpp"
#include "drivers/blkback/granted_pages.hpp"
#include "drivers/blkback/ring_step.hpp"
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
  DataPath path = DataPath::map;
  bool adaptive_polling = true;
  bool reports_pools = true;
};

template <platform::Platform P>
class Ring final : public RingStep {
 public:
  using Env = typename P::Env;

  Ring(typename P::Back& hypervisor, const RingConfig& config, PersistentPool<Env>& persistent,
       FreePages<Env>& free_pages, store::Queue& store, QueueCounters& counters)
      : hypervisor_(hypervisor),
        config_(config),
        view_(config.shared, config.abi, config.slots),
        pages_(hypervisor, {config.frontend, config.path, config.reports_pools}, persistent, free_pages, counters),
        store_(store),
        counters_(counters),
        slots_(config.slots) {
    for (std::uint32_t i = config.slots; i-- > 0;) free_slots_.push_back(i);
    batch_.reserve(config.slots);
  }

  // False: the ring's indexes contradict each other already (pre-poisoned ring); the connect fails with EIO.
  [[nodiscard]] bool attach() { return view_.attach(); }

  StepResult step(unsigned budget) override {
    finished_in_step_ = 0;
    reap_store();
    if (halted_) return {};
    const unsigned consumed = consume(budget);
    flush_batch();
    reap_store();
    push_responses();
    if (consumed > 0) counters_.add(Counter::batches);
    return {consumed, consumed > 0 || finished_in_step_ > 0};
  }

  bool arm() override {
    if (halted_) return true;
    bool overflow = false;
    return !view_.final_check() || (view_.unconsumed(overflow) == 0 && !overflow);
  }
  void defer_events() override {
    if (!halted_) view_.defer_events();
  }

  // The event is acknowledged before the ring is looked at, so that one arriving in between is not lost.
  void take_event() override {
    if (hypervisor_.consume(config_.port)) counters_.add(Counter::events_received);
  }
  void count_poll() override { counters_.add(Counter::polls); }
  void count_spurious_event() override { counters_.add(Counter::events_spurious); }
  void add_cpu(std::uint64_t ns) override { counters_.add(Counter::worker_cpu_ns, ns); }

  [[nodiscard]] bool wants_polling() const override { return config_.adaptive_polling && !halted_; }
  [[nodiscard]] bool idle() const override { return in_flight_ == 0; }
  [[nodiscard]] bool halted() const { return halted_; }
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

  unsigned consume(unsigned budget) {
    bool overflow = false;
    const std::uint32_t available = view_.unconsumed(overflow);
    if (overflow) {
      halt();
      return 0;
    }
    const unsigned n = std::min({static_cast<unsigned>(available), budget, static_cast<unsigned>(free_slots_.size())});
    for (unsigned i = 0; i < n; ++i) consume_one();
    return n;
  }

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
    batch_.push_back(work);
  }

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
    halted_ = true;
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
  bool halted_ = false;
};

}  // namespace xblk::blkback
