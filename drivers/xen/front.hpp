// A user-space frontend on real Xen (platform::FrontHypervisor): pages from /dev/xen/gntalloc, ports from
// /dev/xen/evtchn.
//
// gntalloc is the only way for a process to grant memory, and it forces one difference to a kernel frontend: a page is
// granted when it is *allocated*, to one domain, for writing, until it is freed. So grant() only names the reference a
// page has had all along, `access` cannot make it read-only, and end_access() takes nothing away. Safety against reuse
// (XSA-396) is the kernel's here: after free_pages() it keeps a page that the peer still maps, until the peer unmaps.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "drivers/base/result.hpp"
#include "drivers/base/units.hpp"
#include "drivers/env/real/real_env.hpp"
#include "drivers/platform/concepts.hpp"
#include "drivers/xen/ports.hpp"
#include "drivers/xen/shared_pages.hpp"

struct xengntdev_handle;  // libxengnttab's one type for both of its interfaces

namespace xblk::keystore {
class Client;
}

namespace xblk::xen {

// The domain this process runs in: the key `domid` of its own home in xenstore.
Result<DomId> own_domain(keystore::Client& keys);

class XenFront {
 public:
  // `self`: our domain (own_domain()). ENOENT, ENODEV: no Xen here.
  static Result<std::unique_ptr<XenFront>> open(env::RealEnv& env, DomId self);
  XenFront(const XenFront&) = delete;
  XenFront& operator=(const XenFront&) = delete;

  // ---- platform::GrantIssuer; any thread ----
  Result<platform::PageBlock> allocate_pages(DomId peer, std::uint32_t pages);
  void free_pages(const platform::PageBlock& block);
  [[nodiscard]] std::optional<FrameNumber> frame_of(const std::byte* address) const;
  Result<GrantRef> grant(DomId peer, FrameNumber frame, platform::Access access);
  bool end_access(GrantRef) { return true; }  // see above
  [[nodiscard]] DomId domain() const { return self_; }

  // ---- platform::EventChannels; any thread, but a port is not used while it is being closed ----
  Result<EventPort> allocate_port(DomId remote) { return ports_.allocate_unbound(remote); }
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

  XenFront(env::RealEnv& env, DomId self, Handle gntalloc);

  const DomId self_;
  Handle gntalloc_;
  mutable env::RealEnv::RwLock lock_;  // shared_
  SharedPages shared_;
  Ports ports_;
};

static_assert(platform::FrontHypervisor<XenFront>);

}  // namespace xblk::xen
