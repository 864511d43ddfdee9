// The shared ring as arithmetic: where things are, and what the free-running 32-bit indexes mean (<xen/io/ring.h>).
// Pure: whoever loads and stores the indexes, and with which barriers, is the business of `platform`.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#include "drivers/base/units.hpp"
#include "drivers/blkif/wire.hpp"

namespace xblk::blkif {

// struct blkif_sring: four u32 indexes, then padding up to the slots.
inline constexpr std::size_t kReqProdOffset = 0;
inline constexpr std::size_t kReqEventOffset = 4;
inline constexpr std::size_t kRspProdOffset = 8;
inline constexpr std::size_t kRspEventOffset = 12;
inline constexpr std::size_t kRingHeaderSize = 64;
inline constexpr std::uint32_t kInitialEvent = 1;  // SHARED_RING_INIT: req_event and rsp_event start at 1

inline constexpr std::uint32_t kRingPageOrderMax = 4;
inline constexpr std::uint32_t kRingPagesMax = 1u << kRingPageOrderMax;

// A slot holds a request or its response: their union is as large as the request.
constexpr std::size_t slot_size(Abi abi) {
  return request_slot_size(abi) > response_size(abi) ? request_slot_size(abi) : response_size(abi);
}

// __RING_SIZE: as many slots as fit, rounded down to a power of two so that an index can be masked.
constexpr std::uint32_t ring_slots(std::uint32_t pages, Abi abi) {
  return std::bit_floor(static_cast<std::uint32_t>((pages * kPageSize - kRingHeaderSize) / slot_size(abi)));
}

// RING_GET_REQUEST, RING_GET_RESPONSE: byte offset of a slot. `index` runs freely and wraps at 2^32.
constexpr std::size_t slot_offset(std::uint32_t index, std::uint32_t slots, Abi abi) {
  return kRingHeaderSize + (index & (slots - 1)) * slot_size(abi);
}

// XEN_RING_NR_UNCONSUMED_*, for an index pair that passed producer_overflow().
constexpr std::uint32_t unconsumed(std::uint32_t prod, std::uint32_t cons) {
  return prod - cons;
}

// RING_REQUEST_PROD_OVERFLOW (backend: base = rsp_prod_pvt) and RING_RESPONSE_PROD_OVERFLOW (frontend: base =
// rsp_cons): the peer claims more than the ring holds, so the ring is not to be trusted any more.
constexpr bool producer_overflow(std::uint32_t prod, std::uint32_t base, std::uint32_t slots) {
  return prod - base > slots;
}

// RING_FREE_REQUESTS, on the frontend.
constexpr std::uint32_t free_slots(std::uint32_t req_prod_pvt, std::uint32_t rsp_cons, std::uint32_t slots) {
  return slots - (req_prod_pvt - rsp_cons);
}

// RING_PUSH_*_AND_CHECK_NOTIFY: true if the push from old_prod to new_prod passed the event index, that is, if
// event lies in (old_prod, new_prod].
constexpr bool should_notify(std::uint32_t old_prod, std::uint32_t new_prod, std::uint32_t event) {
  return new_prod - event < new_prod - old_prod;
}

}  // namespace xblk::blkif
