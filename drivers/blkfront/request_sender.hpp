// From an I/O of a caller to requests in the slots of the ring. Under the ring's lock.
#pragma once

#include <algorithm>
#include <cstdint>

#include "drivers/base/check.hpp"
#include "drivers/base/counters.hpp"
#include "drivers/base/units.hpp"
#include "drivers/blkfront/block_device.hpp"
#include "drivers/blkfront/data_path.hpp"
#include "drivers/blkfront/in_flight.hpp"
#include "drivers/blkfront/mailbox.hpp"
#include "drivers/blkfront/ring_setup.hpp"
#include "drivers/blkif/request.hpp"
#include "drivers/blkif/wire.hpp"
#include "drivers/platform/barriers.hpp"
#include "drivers/platform/shared_ring.hpp"

namespace xblk::blkfront {

enum class Progress : std::uint8_t {
  done,   // all of the I/O has become requests
  waits,  // responses, or other queues of the device, will bring room
  never,  // nobody holds what it lacks
};

template <class P>
class RequestSender {
 public:
  RequestSender(const RingSetup& setup, platform::FrontView& view, InFlight<Mailbox<P>>& flight, DataPath<P>& path,
                QueueCounters& counters)
      : setup_(setup), view_(view), flight_(flight), path_(path), counters_(counters) {}

  // Turns as much of the I/O into requests as fits.
  Progress advance(std::uint32_t index) {
    if (issue(index)) return Progress::done;
    if (view_.outstanding() > 0) return Progress::waits;
    if (!path_.shares()) return Progress::never;
    const auto before = setup_.marks->idle_since(setup_.number);
    if (issue(index)) return Progress::done;
    if (view_.outstanding() > 0) return Progress::waits;
    return before && before == setup_.marks->idle_since(setup_.number) ? Progress::never : Progress::waits;
  }

 private:
  // True when all of it has become requests.
  [[nodiscard]] bool issue(std::uint32_t index) {
    IoState<Mailbox<P>>& state = flight_.io(index);
    while (!state.fully_issued) {
      if (flight_.full()) return false;
      const bool carries_data =
          state.io.op != IoOp::flush && state.io.op != IoOp::discard && state.io.count > Sectors(0);
      if (!carries_data) {
        issue_command(index);
      } else if (!issue_transfer(index)) {
        return false;
      }
    }
    return true;
  }

  void issue_command(std::uint32_t index) {
    IoState<Mailbox<P>>& state = flight_.io(index);
    blkif::Request request;
    request.op = wire_op(state.io.op);
    request.segment_count = 0;
    request.sector = state.io.sector;
    request.discard_sectors = state.io.count;
    request.discard_secure = state.io.secure;
    RequestState& sent = flight_.request(flight_.next_slot());
    sent.bytes = 0;
    sent.data_pages = 0;
    sent.indirect = false;
    segments_.count = 0;
    state.fully_issued = true;
    send(request, sent, index);
  }

  [[nodiscard]] bool issue_transfer(std::uint32_t index) {
    IoState<Mailbox<P>>& state = flight_.io(index);
    blkif::Request request;
    request.op = wire_op(state.io.op);
    request.sector = state.io.sector + state.issued;
    RequestState& sent = flight_.request(flight_.next_slot());
    sent.buffer = state.io.buffer + to_bytes(state.issued).value();
    setup_.marks->hold(setup_.number);
    open_pages(request.op, to_bytes(state.io.count - state.issued).value(), sent);
    if (segments_.count == 0) {
      if (view_.outstanding() == 0) setup_.marks->never_held(setup_.number);
      return false;
    }
    state.issued += Sectors(sent.bytes / kSectorSize);
    state.fully_issued = state.issued == state.io.count;
    send(request, sent, index);
    return true;
  }

  // Reaches the data with as many segments as a request may have. While others are in flight, whose responses will
  // bring pages, it is all of them or none; without, as many as there are, so that things move on.
  void open_pages(blkif::Op op, std::uint64_t left, RequestState& sent) {
    const bool whole = view_.outstanding() > 0;
    const bool barrier = op == blkif::Op::write_barrier;  // never indirect
    const std::uint32_t most = barrier ? kDirectMax : setup_.segments_max;
    const auto room = flight_.data_room(sent).first(std::min(path_.pages_needed(sent.buffer, left), most));
    segments_.count = 0;
    sent.bytes = static_cast<std::uint32_t>(path_.open(op, sent.buffer, left, whole, room, segments_));
    sent.indirect = segments_.count > kDirectMax && path_.open_indirect(flight_.indirect_page(sent));
    if (segments_.count > kDirectMax && !sent.indirect) give_up_pages(whole ? 0 : kDirectMax, sent);
    sent.data_pages = static_cast<std::uint16_t>(segments_.count);
  }

  // Without a page to list so many segments in: keeps the first `kept` of them.
  void give_up_pages(std::uint32_t kept, RequestState& sent) {
    const auto opened = flight_.data_room(sent).first(segments_.count);
    // The backend was not told of them. If it holds one all the same, that page is out of use, and no harm is done.
    static_cast<void>(path_.close(opened.subspan(kept)));
    segments_.count = kept;
    sent.bytes = static_cast<std::uint32_t>(to_bytes(blkif::transfer_length(segments_.all())).value());
  }

  void send(blkif::Request& request, RequestState& sent, std::uint32_t io) {
    sent.op = request.op;
    sent.secure = request.discard_secure;
    request.id = flight_.begin_request(io);
    request.segment_count = static_cast<std::uint16_t>(segments_.count);
    request.indirect = sent.indirect;
    if (sent.indirect) {
      const GrantedPage& page = flight_.indirect_page(sent);
      request.indirect_page_count = 1;
      request.indirect_grefs[0] = page.gref;
      blkif::encode_indirect_page(segments_.all(), std::span<std::byte, kPageSize>(page.address, kPageSize));
    }
    const auto raw = blkif::encode_request(blkif::kNativeAbi, request, segments_.all());
    platform::copy_to_shared(view_.next_request(), raw.bytes.data(), raw.bytes.size());
    count_request(sent);
  }

  void count_request(const RequestState& sent) {
    counters_.add(Counter::requests);
    counters_.add(counter_of(sent.op));
    if (segments_.count > 0) counters_.add(Counter::segments, segments_.count);
    if (sent.indirect) counters_.add(Counter::requests_indirect);
  }

  static constexpr auto kDirectMax = static_cast<std::uint32_t>(blkif::kDirectSegmentsMax);

  // A flush without flushes is an empty barrier, as with old backends: it is answered when all before it is durable.
  [[nodiscard]] blkif::Op wire_op(IoOp op) const {
    switch (op) {
      case IoOp::read:
        return blkif::Op::read;
      case IoOp::write:
        return blkif::Op::write;
      case IoOp::flush:
        return setup_.features->has(Feature::flush) ? blkif::Op::flush_diskcache : blkif::Op::write_barrier;
      case IoOp::discard:
        return blkif::Op::discard;
      case IoOp::barrier:
        return blkif::Op::write_barrier;
    }
    XBLK_CHECK(false, "not an IoOp");
  }

  static Counter counter_of(blkif::Op op) {
    switch (op) {
      case blkif::Op::read:
        return Counter::requests_read;
      case blkif::Op::write:
        return Counter::requests_write;
      case blkif::Op::discard:
        return Counter::requests_discard;
      default:
        return Counter::requests_flush;
    }
  }

  const RingSetup& setup_;
  platform::FrontView& view_;
  InFlight<Mailbox<P>>& flight_;
  DataPath<P>& path_;
  QueueCounters& counters_;
  SegmentList segments_;  // of the request being built
};

}  // namespace xblk::blkfront
