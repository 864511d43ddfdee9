// The two views of a shared ring (ring.h): what the frontend and the backend may do with the indexes and slots.
//
//   offset 0 req_prod, 4 req_event, 8 rsp_prod, 12 rsp_event, 64 first slot; slots = power of two.
//   The frontend writes req_prod and rsp_event; the backend writes rsp_prod and req_event. Each end keeps its own
//   private copies of what it wrote and believes the peer's words only within bounds.
#pragma once

#include <cstddef>
#include <cstdint>
#include <new>

#include "drivers/base/check.hpp"
#include "drivers/blkif/ring_layout.hpp"
#include "drivers/platform/barriers.hpp"

namespace xblk::platform {

struct SharedIndexes {
  std::uint32_t req_prod;
  std::uint32_t req_event;
  std::uint32_t rsp_prod;
  std::uint32_t rsp_event;
};

// A fresh ring, as SHARED_RING_INIT: empty, and both ends want an event for the first item.
inline void initialise_ring(std::byte* ring, std::size_t bytes) {
  for (std::size_t i = 0; i < bytes; ++i) ring[i] = std::byte{0};
  auto* indexes = reinterpret_cast<SharedIndexes*>(ring);
  indexes->req_event = 1;
  indexes->rsp_event = 1;
}

class FrontView {
 public:
  FrontView() = default;
  // FRONT_RING_ATTACH: `index` is where both of the ring's producers stand; 0 on a fresh ring.
  FrontView(std::byte* ring, blkif::Abi abi, std::uint32_t slots, std::uint32_t index = 0)
      : ring_(ring),
        indexes_(reinterpret_cast<SharedIndexes*>(ring)),
        abi_(abi),
        slots_(slots),
        req_prod_pvt_(index),
        req_prod_(index),
        rsp_cons_(index) {}

  [[nodiscard]] std::uint32_t slots() const { return slots_; }
  [[nodiscard]] std::uint32_t free_slots() const { return slots_ - (req_prod_pvt_ - rsp_cons_); }
  [[nodiscard]] bool has_unpushed() const { return req_prod_pvt_ != req_prod_; }

  // The next free slot; the caller writes the request with copy_to_shared.
  [[nodiscard]] std::byte* next_request() {
    XBLK_CHECK(free_slots() > 0, "the caller asked free_slots() first");
    return ring_ + blkif::slot_offset(req_prod_pvt_++, slots_, abi_);
  }

  // RING_PUSH_REQUESTS_AND_CHECK_NOTIFY: true when the backend asked for an event within what was just pushed.
  [[nodiscard]] bool push() {
    const std::uint32_t old = req_prod_;
    req_prod_ = req_prod_pvt_;
    // Orders the slot writes before req_prod (release part), and req_prod before the read of req_event.
    // Peer: BackView::final_check, which publishes req_event and then reads req_prod.
    const std::uint32_t event = publish_and_load(indexes_->req_prod, req_prod_, indexes_->req_event);
    return blkif::should_notify(old, req_prod_, event);
  }

  // Number of responses that may be read, or nothing when the backend claims more than was ever asked (hostile).
  // Acquire orders the loads of the response slots after this load. Peer: BackView::push's store of rsp_prod.
  [[nodiscard]] std::uint32_t unconsumed(bool& overflow) const {
    const std::uint32_t produced = load_acquire(indexes_->rsp_prod);
    const std::uint32_t n = produced - rsp_cons_;
    overflow = n > req_prod_ - rsp_cons_;
    return overflow ? 0 : n;
  }

  [[nodiscard]] const std::byte* next_response() { return ring_ + blkif::slot_offset(rsp_cons_++, slots_, abi_); }
  [[nodiscard]] std::uint32_t outstanding() const { return req_prod_pvt_ - rsp_cons_; }
  [[nodiscard]] std::uint32_t owed() const { return req_prod_ - rsp_cons_; }  // of them: pushed

  // For a poller that does not hold the frontend's lock: where the backend publishes, and what has been taken so far.
  [[nodiscard]] const std::uint32_t* response_index() const { return &indexes_->rsp_prod; }
  [[nodiscard]] std::uint32_t consumed() const { return rsp_cons_; }

  // RING_FINAL_CHECK_FOR_RESPONSES: ask for an event at the next response, then look once more. True: there are
  // responses already, do not sleep. The lost wake-up (a response between the last look and the request for an event)
  // is closed because the backend publishes rsp_prod before it reads rsp_event.
  //
  // `holdoff`: ask one event for that many responses. An event index beyond what the backend owes would never be
  // reached, so it is cut to the requests outstanding: each of them gets its response, and the last one crosses the
  // index. What is still lost is time: the first responses of a batch whose last one is slow wait for it. So a caller
  // with a hold-off above 1 sleeps for a bounded time, and looks at the ring at its end.
  [[nodiscard]] bool final_check(std::uint32_t holdoff = 1) {
    const std::uint32_t event = rsp_cons_ + (holdoff < owed() ? holdoff : owed() > 0 ? owed() : 1);
    return publish_and_load(indexes_->rsp_event, event, indexes_->rsp_prod) != rsp_cons_;
  }
  // While polling: put the wanted event out of reach, so that the backend sends none.
  void defer_events() { store_release(indexes_->rsp_event, rsp_cons_ - 1); }

 private:
  std::byte* ring_ = nullptr;
  SharedIndexes* indexes_ = nullptr;
  blkif::Abi abi_ = blkif::kNativeAbi;
  std::uint32_t slots_ = 0;
  std::uint32_t req_prod_pvt_ = 0;  // written, perhaps not yet pushed
  std::uint32_t req_prod_ = 0;      // pushed
  std::uint32_t rsp_cons_ = 0;
};

class BackView {
 public:
  BackView() = default;
  BackView(std::byte* ring, blkif::Abi abi, std::uint32_t slots)
      : ring_(ring), indexes_(reinterpret_cast<SharedIndexes*>(ring)), abi_(abi), slots_(slots) {}

  [[nodiscard]] std::uint32_t slots() const { return slots_; }
  [[nodiscard]] blkif::Abi abi() const { return abi_; }

  // Start from what the ring holds (BACK_RING_ATTACH): a frontend may have pushed before we connected. False: the
  // indexes contradict each other, as with a pre-poisoned ring (blkback answers -EIO).
  [[nodiscard]] bool attach() {
    rsp_prod_pvt_ = load_acquire(indexes_->rsp_prod);
    rsp_prod_ = rsp_prod_pvt_;
    req_cons_ = rsp_prod_pvt_;
    return load_acquire(indexes_->req_prod) - rsp_prod_pvt_ <= slots_;
  }

  // Requests that may be read. `overflow`: req_prod is further ahead of our responses than the ring is long
  // (RING_REQUEST_PROD_OVERFLOW): halt the ring, never loop over it.
  // Acquire orders the loads of the request slots after this load. Peer: FrontView::push's store of req_prod.
  [[nodiscard]] std::uint32_t unconsumed(bool& overflow) const {
    const std::uint32_t produced = load_acquire(indexes_->req_prod);
    overflow = produced - rsp_prod_pvt_ > slots_;
    if (overflow) return 0;
    // RING_REQUEST_CONS_OVERFLOW: never consume a slot whose response has not been produced.
    const std::uint32_t room = slots_ - (req_cons_ - rsp_prod_pvt_);
    const std::uint32_t n = produced - req_cons_;
    return n < room ? n : room;
  }

  [[nodiscard]] const std::byte* next_request() { return ring_ + blkif::slot_offset(req_cons_++, slots_, abi_); }
  [[nodiscard]] std::byte* next_response() { return ring_ + blkif::slot_offset(rsp_prod_pvt_++, slots_, abi_); }
  [[nodiscard]] std::uint32_t in_flight() const { return req_cons_ - rsp_prod_pvt_; }
  [[nodiscard]] bool has_unpushed() const { return rsp_prod_pvt_ != rsp_prod_; }

  // RING_PUSH_RESPONSES_AND_CHECK_NOTIFY. Orders the slot writes before rsp_prod, and rsp_prod before the read of
  // rsp_event. Peer: FrontView::final_check.
  [[nodiscard]] bool push() {
    const std::uint32_t old = rsp_prod_;
    rsp_prod_ = rsp_prod_pvt_;
    const std::uint32_t event = publish_and_load(indexes_->rsp_prod, rsp_prod_, indexes_->rsp_event);
    return blkif::should_notify(old, rsp_prod_, event);
  }

  // RING_FINAL_CHECK_FOR_REQUESTS: ask for an event at the next request, then look once more. True: do not sleep.
  // Closed against the lost wake-up as FrontView::push publishes req_prod before it reads req_event.
  //
  // `holdoff`: ask one event for that many requests. A frontend owes us none: it may send fewer and wait for them for
  // ever, without an event. So a hold-off above 1 is a promise to look again within a bounded time, and only a
  // final_check(1) that found nothing allows a sleep without end.
  [[nodiscard]] bool final_check(std::uint32_t holdoff = 1) {
    return publish_and_load(indexes_->req_event, req_cons_ + holdoff, indexes_->req_prod) != req_cons_;
  }
  // While polling: no event for any request that fits the ring.
  void defer_events() { store_release(indexes_->req_event, req_cons_ - 1); }

 private:
  std::byte* ring_ = nullptr;
  SharedIndexes* indexes_ = nullptr;
  blkif::Abi abi_ = blkif::kNativeAbi;
  std::uint32_t slots_ = 0;
  std::uint32_t req_cons_ = 0;
  std::uint32_t rsp_prod_pvt_ = 0;
  std::uint32_t rsp_prod_ = 0;
};

}  // namespace xblk::platform
