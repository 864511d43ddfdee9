// ShimServer: the host's side of the shim's two sockets. It answers what xenstored asks of its hypervisor and carries
// events both ways. Runs on the loop's thread.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <set>

#include "drivers/base/result.hpp"
#include "drivers/base/unique_fd.hpp"
#include "drivers/base/units.hpp"
#include "drivers/hypervisor/xenstored/poll_loop.hpp"
#include "drivers/hypervisor/xenstored/shim_protocol.hpp"

namespace xblk::hypervisor {

class ShimServer {
 public:
  // What the server has to know of the host's domains.
  struct Host {
    std::function<DomainState(DomId)> state;
    std::function<int(DomId)> ring_fd;     // memfd of the ring page, -1 when there is none
    std::function<void(DomId)> on_notify;  // xenstored sent an event to the domain
    std::function<void()> on_lost;         // the shim is gone or makes no sense; must not destroy the server
  };

  static Result<std::unique_ptr<ShimServer>> create(PollLoop& loop, UniqueFd control, Host host);
  ~ShimServer();

  void send_event(DomId from);   // the domain's event to xenstored; no effect while it has not bound the port
  void send_domain_exception();  // VIRQ_DOM_EXC: a domain's state changed

 private:
  ShimServer(PollLoop& loop, UniqueFd control, UniqueFd events, UniqueFd events_of_shim, Host host);
  void on_control();
  ShimReply answer(const ShimRequest& request, int& fd);
  ShimReply bind(DomId domain);
  void on_events(std::uint32_t ready);
  void raise(std::uint32_t port);
  void send_owed();

  PollLoop& loop_;
  UniqueFd control_;
  UniqueFd events_;
  UniqueFd events_of_shim_;  // until it asks for it
  Host host_;
  std::map<std::uint32_t, DomId> domain_of_port_;
  std::map<DomId, std::uint32_t> port_of_domain_;
  std::uint32_t exception_port_ = 0;  // 0: not bound
  std::uint32_t next_port_ = 1;
  std::set<std::uint32_t> owed_;  // events that did not fit into the socket yet; an event pends once, as on Xen
};

}  // namespace xblk::hypervisor
