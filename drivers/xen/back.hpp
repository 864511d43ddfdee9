// A user-space backend on real Xen (platform::BackHypervisor): mappings and copies through /dev/xen/gntdev, ports
// through /dev/xen/evtchn.
//
// LockWait stays untouched: the locks waited for here are the hypervisor's (grant table, maptrack), and no interface
// tells user space of them. xenperf and the lab's lock profile do.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "drivers/base/result.hpp"
#include "drivers/base/units.hpp"
#include "drivers/env/real/real_env.hpp"
#include "drivers/platform/concepts.hpp"
#include "drivers/xen/mappings.hpp"
#include "drivers/xen/ports.hpp"

struct xengntdev_handle;

namespace xblk::xen {

class XenBack {
 public:
  // ENOENT, ENODEV: no Xen here.
  static Result<std::unique_ptr<XenBack>> open(env::RealEnv& env);
  XenBack(const XenBack&) = delete;
  XenBack& operator=(const XenBack&) = delete;

  // ---- platform::GrantMapper, platform::RingMapper; any thread ----
  void map(DomId peer, std::span<platform::MapOp> ops, platform::LockWait& wait);
  void unmap(std::span<platform::UnmapOp> ops, platform::LockWait& wait);
  void copy(DomId peer, std::span<platform::CopyOp> ops, platform::LockWait& wait);
  Result<std::byte*> map_contiguous(DomId peer, std::span<const GrantRef> grefs);
  void unmap_contiguous(std::byte* address, std::uint32_t pages);

  // ---- platform::EventChannels; any thread, but a port is not used while it is being closed ----
  Result<EventPort> bind_interdomain(DomId peer, EventPort remote) { return ports_.bind_interdomain(peer, remote); }
  void close_port(EventPort port) { ports_.close(port); }
  void notify(EventPort port) { ports_.notify(port); }
  bool consume(EventPort port) { return ports_.consume(port); }
  void mask(EventPort port) { ports_.mask(port); }
  void unmask(EventPort port) { ports_.unmask(port); }
  [[nodiscard]] int waitable(EventPort port) { return ports_.waitable(port); }

  // What is still held; empty: nothing.
  [[nodiscard]] std::string leaks();

 private:
  struct Close {
    void operator()(xengntdev_handle* handle) const;
  };
  using Handle = std::unique_ptr<xengntdev_handle, Close>;

  XenBack(env::RealEnv& env, Handle gntdev);

  Handle gntdev_;
  env::RealEnv::Mutex lock_;  // mappings_
  Mappings mappings_;         // of single pages
  std::atomic<std::uint32_t> ring_pages_{0};
  Ports ports_;
};

static_assert(platform::BackHypervisor<XenBack>);

}  // namespace xblk::xen
