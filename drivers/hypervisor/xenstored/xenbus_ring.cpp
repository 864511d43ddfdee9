#include "drivers/hypervisor/xenstored/xenbus_ring.hpp"

extern "C" {
#include <stdint.h>

#include <xen/io/xs_wire.h>
}

#include <algorithm>
#include <array>

#include "drivers/platform/barriers.hpp"

namespace xblk::hypervisor {
namespace {

using platform::load_acquire;
using platform::store_release;

// Free-running indexes: the distance is taken modulo 2^32.
bool possible(std::uint32_t producer, std::uint32_t consumer) {
  return producer - consumer <= XENSTORE_RING_SIZE;
}

// Bytes that can be moved at `index` without wrapping around the end of the ring.
std::size_t contiguous(std::uint32_t index, std::size_t wanted) {
  return std::min<std::size_t>(wanted, XENSTORE_RING_SIZE - MASK_XENSTORE_IDX(index));
}

}  // namespace

XenbusRing::XenbusRing(std::byte* page) : shared_(*reinterpret_cast<xenstore_domain_interface*>(page)) {
  static_assert(sizeof(xenstore_domain_interface) <= 4096);
}

bool XenbusRing::send(std::string& bytes, bool& moved) {
  std::size_t sent = 0;
  while (sent < bytes.size()) {
    const std::uint32_t consumer = load_acquire(shared_.req_cons);
    const std::uint32_t producer = shared_.req_prod;  // written by this end only
    if (!possible(producer, consumer) || load_acquire(shared_.error) != XENSTORE_ERROR_NONE) return false;
    const std::size_t space = XENSTORE_RING_SIZE - (producer - consumer);
    const std::size_t chunk = contiguous(producer, std::min(space, bytes.size() - sent));
    if (chunk == 0) break;
    platform::copy_to_shared(&shared_.req[MASK_XENSTORE_IDX(producer)], bytes.data() + sent, chunk);
    store_release(shared_.req_prod, static_cast<std::uint32_t>(producer + chunk));
    sent += chunk;
    moved = true;
  }
  bytes.erase(0, sent);
  return true;
}

bool XenbusRing::receive(std::string& bytes, bool& moved) {
  std::array<char, XENSTORE_RING_SIZE> buffer;
  while (true) {
    const std::uint32_t producer = load_acquire(shared_.rsp_prod);
    const std::uint32_t consumer = shared_.rsp_cons;  // written by this end only
    if (!possible(producer, consumer) || load_acquire(shared_.error) != XENSTORE_ERROR_NONE) return false;
    const std::size_t chunk = contiguous(consumer, producer - consumer);
    if (chunk == 0) return true;
    platform::copy_from_shared(buffer.data(), &shared_.rsp[MASK_XENSTORE_IDX(consumer)], chunk);
    store_release(shared_.rsp_cons, static_cast<std::uint32_t>(consumer + chunk));
    bytes.append(buffer.data(), chunk);
    moved = true;
  }
}

}  // namespace xblk::hypervisor
