// A backend that does what a test says: it negotiates like a good one unless told otherwise, takes requests when asked
// and puts any responses on the ring. For tests of frontends, which trust their backend no more than it trusts them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "drivers/base/check.hpp"
#include "drivers/base/units.hpp"
#include "drivers/blkif/negotiation.hpp"
#include "drivers/blkif/request.hpp"
#include "drivers/blkif/ring_layout.hpp"
#include "drivers/blkif/wire.hpp"
#include "drivers/platform/concepts.hpp"
#include "drivers/platform/shared_ring.hpp"

namespace xblk::peer {

template <class P>
class ScriptedBack {
 public:
  ScriptedBack(typename P::Back& hypervisor, typename P::Keys& keys, std::string path, std::string frontend_path,
               DomId frontend)
      : hypervisor_(hypervisor),
        keys_(keys),
        path_(std::move(path)),
        frontend_path_(std::move(frontend_path)),
        frontend_(frontend) {
    offer_.sectors = Sectors(8192);
    offer_.persistent = true;
  }
  ~ScriptedBack() { release(); }
  ScriptedBack(const ScriptedBack&) = delete;
  ScriptedBack& operator=(const ScriptedBack&) = delete;

  blkif::BackendOffer& offer() { return offer_; }

  void write(std::string_view key, const std::string& value) {
    XBLK_CHECK(keys_.write(path_ + "/" + std::string(key), value).has_value(), "dom0 may write everything");
  }
  void set_state(const std::string& state) { write("state", state); }
  std::string frontend_state() { return keys_.read(frontend_path_ + "/state").value_or(""); }

  void publish_limits() {
    for (const auto& [key, value] : blkif::backend_limit_keys(offer_.limits)) write(key, value);
    set_state("2");
  }
  // Maps what a frontend at Initialised has published (one queue), then Connected.
  void connect() {
    attach();
    for (const auto& [key, value] : blkif::backend_property_keys(offer_)) write(key, value);
    set_state("4");
  }
  // A successor of a backend that ended without a word (both ends stay Connected): it goes on where the responses end.
  void take_over() {
    attach();
    req_cons_ = rsp_prod_ = platform::load_acquire(indexes().rsp_prod);
  }
  // As at a disconnect: ring and port go back. Whatever the test mapped is its own affair.
  void release() {
    if (ring_ != nullptr) hypervisor_.unmap_contiguous(std::exchange(ring_, nullptr), pages_);
    if (port_ != EventPort()) hypervisor_.close_port(std::exchange(port_, EventPort()));
  }

  std::optional<blkif::Request> take_request() {
    if (platform::load_acquire(indexes().req_prod) == req_cons_) return std::nullopt;
    blkif::RawRequest raw{};
    platform::copy_from_shared(raw.bytes.data(), ring_ + blkif::slot_offset(req_cons_++, slots_, blkif::kNativeAbi),
                               blkif::request_slot_size(blkif::kNativeAbi));
    blkif::DeviceLimits limits;
    limits.capacity = offer_.sectors;
    limits.flush = limits.barrier = limits.discard = limits.discard_secure = true;
    limits.indirect_segments_max = blkif::kIndirectSegmentsMax;
    const auto request = blkif::parse_request(blkif::kNativeAbi, raw, limits);
    XBLK_CHECK(request.has_value(), "the reference frontend sends good requests");
    return *request;
  }
  // Any response, asked for or not.
  void respond(const blkif::Response& response) {
    put(blkif::encode_response(response));
    set_rsp_prod(rsp_prod_);
  }
  // Any bytes in the next slot; nothing is said of them.
  void put(const blkif::RawResponse& raw) {
    platform::copy_to_shared(slot(rsp_prod_++), raw.bytes.data(), blkif::response_size(blkif::kNativeAbi));
  }
  // As a good backend does: an event only where the frontend asked for one. True: it was sent.
  bool answer(const blkif::Response& response) {
    const std::uint32_t old = rsp_prod_;
    put(blkif::encode_response(response));
    const auto event = platform::publish_and_load(indexes().rsp_prod, rsp_prod_, indexes().rsp_event);
    const bool wanted = blkif::should_notify(old, rsp_prod_, event);
    if (wanted) notify();
    return wanted;
  }
  void set_rsp_prod(std::uint32_t value) {
    platform::store_release(indexes().rsp_prod, value);
    notify();
  }
  void notify() { hypervisor_.notify(port_); }
  platform::SharedIndexes& indexes() { return *reinterpret_cast<platform::SharedIndexes*>(ring_); }
  std::byte* slot(std::uint32_t index) { return ring_ + blkif::slot_offset(index, slots_, blkif::kNativeAbi); }
  [[nodiscard]] std::byte* ring() { return ring_; }
  // Responses put so far.
  [[nodiscard]] std::uint32_t produced() const { return rsp_prod_; }
  // False: nothing is mapped, so there is no ring to speak of.
  [[nodiscard]] bool attached() const { return ring_ != nullptr; }

  platform::MapOp map(GrantRef gref, platform::Access access = platform::Access::read_write) {
    platform::MapOp op{gref, access};
    platform::LockWait ignored;
    hypervisor_.map(frontend_, {&op, 1}, ignored);
    return op;
  }
  void unmap(const platform::MapOp& mapped) {
    platform::UnmapOp op{mapped.handle, mapped.address};
    platform::LockWait ignored;
    hypervisor_.unmap({&op, 1}, ignored);
    XBLK_CHECK(op.status == platform::GrantStatus::okay, "unmap what map() returned");
  }

 private:
  void attach() {
    const auto tree = keys_.read_tree(frontend_path_);
    XBLK_CHECK(tree.has_value(), "the frontend is at Initialised");
    const auto keys = blkif::parse_frontend_keys(*tree, offer_.limits);
    XBLK_CHECK(keys.has_value() && keys->queues.size() == 1, "the frontend asks for the one queue that was offered");
    const auto& queue = keys->queues[0];
    auto ring = hypervisor_.map_contiguous(frontend_, queue.ring_refs);
    auto port = hypervisor_.bind_interdomain(frontend_, queue.event_channel);
    XBLK_CHECK(ring.has_value() && port.has_value(), "the frontend's ring and port are good");
    ring_ = *ring;
    pages_ = static_cast<std::uint32_t>(queue.ring_refs.size());
    port_ = *port;
    slots_ = blkif::ring_slots(pages_, keys->abi);
    req_cons_ = rsp_prod_ = 0;
  }

  typename P::Back& hypervisor_;
  typename P::Keys& keys_;
  std::string path_;
  std::string frontend_path_;
  DomId frontend_;
  blkif::BackendOffer offer_;
  std::byte* ring_ = nullptr;
  std::uint32_t pages_ = 0;
  std::uint32_t slots_ = 0;
  EventPort port_{};
  std::uint32_t req_cons_ = 0;
  std::uint32_t rsp_prod_ = 0;
};

}  // namespace xblk::peer
