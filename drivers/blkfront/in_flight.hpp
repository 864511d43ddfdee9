// What is under way on one ring: the I/Os of the callers, the requests that they became, and the pages of those.
//
// All of it is allocated when the ring is attached. An I/O stays in the table while a request of it is in flight, and
// one I/O at most waits for room with none; so there are never more of them than ring slots, and one.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "drivers/base/check.hpp"
#include "drivers/base/units.hpp"
#include "drivers/blkfront/block_device.hpp"
#include "drivers/blkfront/grant_pool.hpp"
#include "drivers/blkif/wire.hpp"

namespace xblk::blkfront {

static_assert(blkif::kIndirectSegmentsMax <= blkif::kSegmentsPerIndirectPage, "one indirect page holds them all");

template <class Owner>
struct IoState {
  Io io;
  Owner* owner = nullptr;      // null: its caller went away
  Sectors issued{};            // how much of it has become requests
  std::uint32_t requests = 0;  // in flight
  int error = 0;
  bool fully_issued = false;
};

struct RequestState {
  std::uint64_t id = 0;         // 0: not in flight
  std::byte* buffer = nullptr;  // of the caller, where this request's data starts
  std::uint32_t bytes = 0;
  std::uint32_t io = 0;  // index
  std::uint16_t data_pages = 0;
  blkif::Op op = blkif::Op::read;
  bool indirect = false;  // has an indirect page, too
  bool secure = false;
};

template <class Owner>
class InFlight {
 public:
  InFlight() = default;
  InFlight(std::uint32_t slots, std::uint32_t data_pages_max)
      : data_pages_max_(data_pages_max),
        ios_(slots + 1),  // one may be waiting for a slot
        requests_(slots),
        pages_(std::size_t{slots} * (data_pages_max + 1)) {
    for (std::uint32_t i = slots + 1; i-- > 0;) free_ios_.push_back(i);
    for (std::uint32_t i = slots; i-- > 0;) free_requests_.push_back(i);
  }

  // ---- I/Os ----

  [[nodiscard]] std::uint32_t begin_io(const Io& io, Owner& owner) {
    const std::uint32_t index = free_ios_.back();
    free_ios_.pop_back();
    ios_[index] = {io, &owner, Sectors(0), 0, 0, false};
    return index;
  }
  void end_io(std::uint32_t index) { free_ios_.push_back(index); }
  [[nodiscard]] IoState<Owner>& io(std::uint32_t index) { return ios_[index]; }
  [[nodiscard]] std::uint32_t ios() const { return static_cast<std::uint32_t>(ios_.size() - free_ios_.size()); }

  void disown(const Owner& owner) {
    for (auto& io : ios_) {
      if (io.owner == &owner) io.owner = nullptr;
    }
  }

  // ---- requests ----

  [[nodiscard]] bool full() const { return free_requests_.empty(); }
  // The slot that the next request will have; it may be filled, and is free as long as begin_request() was not called.
  [[nodiscard]] std::uint32_t next_slot() const { return free_requests_.back(); }
  [[nodiscard]] RequestState& request(std::uint32_t slot) { return requests_[slot]; }

  // From now on a response is expected. The id's upper bits are a sequence number, so that a response that comes twice,
  // or late, matches nothing.
  [[nodiscard]] std::uint64_t begin_request(std::uint32_t io) {
    const std::uint32_t slot = free_requests_.back();
    free_requests_.pop_back();
    requests_[slot].id = (++sequence_ << kSlotBits) | slot;
    requests_[slot].io = io;
    ++ios_[io].requests;
    return requests_[slot].id;
  }
  // The slot of a request in flight, or null for an id that the backend made up.
  [[nodiscard]] RequestState* find(std::uint64_t id) {
    const std::uint64_t slot = id & ((1u << kSlotBits) - 1);
    if (id == 0 || slot >= requests_.size() || requests_[slot].id != id) return nullptr;
    return &requests_[slot];
  }
  void end_request(RequestState& request) {
    request.id = 0;
    free_requests_.push_back(slot_of(request));
  }
  template <class Visit>
  void for_each_request(Visit visit) {
    for (RequestState& request : requests_) {
      if (request.id != 0) visit(request);
    }
  }

  // ---- pages of a request ----

  // Room for all the data pages that it may have; `data_pages` of them are in use.
  [[nodiscard]] std::span<GrantedPage> data_room(const RequestState& request) {
    return std::span(pages_).subspan(first_page(request), data_pages_max_);
  }
  [[nodiscard]] std::span<GrantedPage> data_pages(const RequestState& request) {
    return data_room(request).first(request.data_pages);
  }
  [[nodiscard]] GrantedPage& indirect_page(const RequestState& request) {
    return pages_[first_page(request) + data_pages_max_];
  }

 private:
  static constexpr unsigned kSlotBits = 16;

  [[nodiscard]] std::uint32_t slot_of(const RequestState& request) const {
    return static_cast<std::uint32_t>(&request - requests_.data());
  }

  [[nodiscard]] std::size_t first_page(const RequestState& request) const {
    return std::size_t{slot_of(request)} * (data_pages_max_ + 1);
  }

  std::uint32_t data_pages_max_ = 0;
  std::uint64_t sequence_ = 0;
  std::vector<IoState<Owner>> ios_;
  std::vector<RequestState> requests_;
  std::vector<GrantedPage> pages_;
  std::vector<std::uint32_t> free_ios_;
  std::vector<std::uint32_t> free_requests_;
};

}  // namespace xblk::blkfront
