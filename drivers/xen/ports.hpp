// Event channels through /dev/xen/evtchn (platform::EventChannels): the same for a frontend and a backend, but for how
// a port comes to be.
//
// One handle per port. The kernel queues all ports of a handle in one ring behind one descriptor, so only a handle of
// its own gives a port a descriptor of its own to wait for; and it keeps the ports off each other's kernel mutex.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <unordered_map>

#include "drivers/base/result.hpp"
#include "drivers/base/units.hpp"
#include "drivers/env/real/real_env.hpp"

namespace xblk::xen {

class Ports {
 public:
  explicit Ports(env::RealEnv& env);
  ~Ports();

  // ENOENT, ENODEV: no Xen here.
  static Status available();

  Result<EventPort> allocate_unbound(DomId remote);
  Result<EventPort> bind_interdomain(DomId remote, EventPort remote_port);
  void close(EventPort port);

  void notify(EventPort port);
  bool consume(EventPort port);
  void mask(EventPort port);
  void unmask(EventPort port);
  [[nodiscard]] int waitable(EventPort port);

  [[nodiscard]] std::size_t open_ports();

 private:
  class Channel;

  EventPort adopt(std::unique_ptr<Channel> channel);
  // Null for a port that is not open: operations on it have no effect.
  Channel* find(EventPort port);

  env::RealEnv::RwLock lock_;
  std::unordered_map<EventPort, std::unique_ptr<Channel>> channels_;
};

}  // namespace xblk::xen
