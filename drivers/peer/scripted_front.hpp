// A frontend that does what a test says, byte by byte: it negotiates like a good one unless told otherwise, and then
// puts any bytes on its ring. For tests, fuzzers and benchmarks of backends.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

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
class ScriptedFront {
 public:
  ScriptedFront(typename P::Front& hypervisor, typename P::Keys& keys, std::string path,
                blkif::Abi abi = blkif::kNativeAbi)
      : hypervisor_(hypervisor), keys_(keys), path_(std::move(path)), abi_(abi) {
    offer_.abi = abi;
    offer_.persistent = true;
  }

  blkif::FrontendOffer& offer() { return offer_; }

  // Ring, port and keys as blkfront writes them, then Initialised. Call when the backend is at InitWait.
  void publish() {
    const std::uint32_t pages = 1u << offer_.ring_page_order;
    ring_ = allocate(pages);
    platform::initialise_ring(ring_.address, pages * kPageSize);
    blkif::QueueOffer queue;
    for (std::uint32_t i = 0; i < pages; ++i) queue.ring_refs.push_back(grant(ring_, i));
    auto port = hypervisor_.allocate_port(kDom0);
    XBLK_CHECK(port.has_value(), "a test guest has ports");
    queue.event_channel = port_ = *port;
    offer_.queues = {queue};
    for (const auto& [key, value] : blkif::frontend_keys(offer_)) write(key, value);
    set_state("3");
    slots_ = blkif::ring_slots(pages, abi_);
  }

  void write(std::string_view key, const std::string& value) {
    XBLK_CHECK(keys_.write(path_ + "/" + std::string(key), value).has_value(), "a guest writes its own directory");
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

  // The slot that the next request goes to; written without any check.
  std::byte* slot() { return ring_.address + blkif::slot_offset(req_prod_, slots_, abi_); }
  void put(const blkif::RawRequest& raw) {
    std::memcpy(slot(), raw.bytes.data(), blkif::request_slot_size(abi_));
    ++req_prod_;
  }
  void put(const blkif::Request& request, std::span<const blkif::Segment> segments) {
    put(blkif::encode_request(abi_, request, segments));
  }
  void push() { set_req_prod(req_prod_); }
  // Any value, also one that no honest ring has.
  void set_req_prod(std::uint32_t value) {
    platform::store_release(indexes().req_prod, value);
    hypervisor_.notify(port_);
  }
  platform::SharedIndexes& indexes() { return *reinterpret_cast<platform::SharedIndexes*>(ring_.address); }

  std::optional<blkif::Response> take_response() {
    if (platform::load_acquire(indexes().rsp_prod) == rsp_cons_) return std::nullopt;
    blkif::RawResponse raw{};
    std::memcpy(raw.bytes.data(), ring_.address + blkif::slot_offset(rsp_cons_++, slots_, abi_),
                blkif::response_size(abi_));
    return blkif::decode_response(raw);
  }
  // The raw bytes where the response to the oldest open request will stand.
  std::byte* response_slot() { return ring_.address + blkif::slot_offset(rsp_cons_, slots_, abi_); }

  [[nodiscard]] EventPort port() const { return port_; }
  [[nodiscard]] std::uint32_t slots() const { return slots_; }

 private:
  typename P::Front& hypervisor_;
  typename P::Keys& keys_;
  std::string path_;
  blkif::Abi abi_;
  blkif::FrontendOffer offer_;
  platform::PageBlock ring_{};
  EventPort port_{};
  std::uint32_t slots_ = 0;
  std::uint32_t req_prod_ = 0;
  std::uint32_t rsp_cons_ = 0;
};

}  // namespace xblk::peer
