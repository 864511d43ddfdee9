// A frontend that does what a test says, byte by byte: it negotiates like a good one unless told otherwise, and then
// puts any bytes on its ring. For tests, fuzzers and benchmarks of backends.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "drivers/base/check.hpp"
#include "drivers/base/units.hpp"
#include "drivers/blkif/negotiation.hpp"
#include "drivers/blkif/request.hpp"
#include "drivers/blkif/ring_layout.hpp"
#include "drivers/blkif/wire.hpp"
#include "drivers/platform/concepts.hpp"
#include "drivers/platform/shared_ring.hpp"
#include "drivers/platform/untrusted.hpp"

namespace xblk::peer {

template <class P>
class ScriptedFront {
 public:
  ScriptedFront(typename P::Front& hypervisor, typename P::Keys& keys, std::string path,
                blkif::Abi abi = blkif::kNativeAbi)
      : hypervisor_(hypervisor), keys_(keys), path_(std::move(path)), abi_(abi) {
    offer_.abi = abi;
    offer_.persistent = true;
  }

  blkif::FrontendOffer& offer() { return offer_; }

  // Rings, ports and keys as blkfront writes them, then Initialised. Call when the backend is at InitWait. All traffic
  // is on the first queue; the others stay idle.
  void publish(std::uint32_t queues = 1) {
    build_rings(queues);
    for (const auto& [key, value] : blkif::frontend_keys(offer_)) write(key, value);
    set_state("3");
  }
  // The same without a word to the key store.
  void build_rings(std::uint32_t queues = 1) {
    const std::uint32_t pages = 1u << offer_.ring_page_order;
    offer_.queues.clear();
    for (std::uint32_t q = 0; q < queues; ++q) {
      const platform::PageBlock ring = allocate(pages);
      platform::initialise_ring(ring.address, pages * kPageSize);
      blkif::QueueOffer queue;
      for (std::uint32_t i = 0; i < pages; ++i) queue.ring_refs.push_back(grant(ring, i));
      queue.event_channel = allocate_port();
      offer_.queues.push_back(std::move(queue));
      rings_.push_back(ring);
    }
    slots_ = blkif::ring_slots(pages, abi_);
    req_prod_ = rsp_cons_ = 0;
  }
  // After the backend has closed: what build_rings() gave comes back. False: the backend still holds some of it.
  bool withdraw() {
    bool all = true;
    for (std::size_t q = 0; q < rings_.size(); ++q) {
      bool ended = true;
      for (const GrantRef gref : offer_.queues[q].ring_refs) ended = hypervisor_.end_access(gref) && ended;
      if (ended) hypervisor_.free_pages(rings_[q]);
      hypervisor_.close_port(offer_.queues[q].event_channel);
      all = all && ended;
    }
    rings_.clear();
    offer_.queues.clear();
    return all;
  }

  void write(std::string_view key, const std::string& value) {
    XBLK_CHECK(keys_.write(path_ + "/" + std::string(key), value).has_value(), "a guest writes its own directory");
  }
  void remove(std::string_view key) {
    XBLK_CHECK(keys_.remove(path_ + "/" + std::string(key)).has_value(), "a guest writes its own directory");
  }
  void set_state(const std::string& state) { write("state", state); }

  platform::PageBlock allocate(std::uint32_t pages) {
    auto block = hypervisor_.allocate_pages(kDom0, pages);
    XBLK_CHECK(block.has_value(), "a test guest has memory");
    return *block;
  }
  GrantRef grant(const platform::PageBlock& block, std::uint32_t page,
                 platform::Access access = platform::Access::read_write) {
    auto gref = hypervisor_.grant(kDom0, FrameNumber(block.first_frame.value() + page), access);
    XBLK_CHECK(gref.has_value(), "a test guest has grant entries");
    return *gref;
  }
  // False: the backend holds the page.
  bool end_access(GrantRef gref) { return hypervisor_.end_access(gref); }
  EventPort allocate_port(DomId peer = kDom0) {
    auto port = hypervisor_.allocate_port(peer);
    XBLK_CHECK(port.has_value(), "a test guest has ports");
    return *port;
  }

  // The slot that the next request goes to; written without any check, but as a peer that may be read at any moment.
  std::byte* slot() { return slot(req_prod_); }
  std::byte* slot(std::uint32_t index) { return ring() + blkif::slot_offset(index, slots_, abi_); }
  void put(const blkif::RawRequest& raw) {
    platform::copy_to_shared(slot(), raw.bytes.data(), blkif::request_slot_size(abi_));
    ++req_prod_;
  }
  void put(const blkif::Request& request, std::span<const blkif::Segment> segments) {
    put(blkif::encode_request(abi_, request, segments));
  }
  void push() { set_req_prod(req_prod_); }
  // Any value, also one that no honest ring has.
  void set_req_prod(std::uint32_t value) {
    platform::store_release(indexes().req_prod, value);
    notify();
  }
  void notify() { hypervisor_.notify(port()); }
  platform::SharedIndexes& indexes() { return *reinterpret_cast<platform::SharedIndexes*>(ring()); }

  std::optional<blkif::Response> take_response() {
    if (platform::load_acquire(indexes().rsp_prod) == rsp_cons_) return std::nullopt;
    blkif::RawResponse raw{};
    platform::copy_from_shared(raw.bytes.data(), slot(rsp_cons_++), blkif::response_size(abi_));
    return blkif::decode_response(raw);
  }
  // The raw bytes where the response to the oldest open request will stand.
  std::byte* response_slot() { return slot(rsp_cons_); }

  [[nodiscard]] std::byte* ring() { return rings_.at(0).address; }
  [[nodiscard]] EventPort port() const { return offer_.queues.at(0).event_channel; }
  [[nodiscard]] std::uint32_t slots() const { return slots_; }
  [[nodiscard]] blkif::Abi abi() const { return abi_; }
  // Requests put so far, pushed or not; and responses taken.
  [[nodiscard]] std::uint32_t produced() const { return req_prod_; }
  [[nodiscard]] std::uint32_t taken() const { return rsp_cons_; }

 private:
  typename P::Front& hypervisor_;
  typename P::Keys& keys_;
  std::string path_;
  blkif::Abi abi_;
  blkif::FrontendOffer offer_;
  std::vector<platform::PageBlock> rings_;
  std::uint32_t slots_ = 0;
  std::uint32_t req_prod_ = 0;
  std::uint32_t rsp_cons_ = 0;
};

}  // namespace xblk::peer
