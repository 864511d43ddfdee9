// The host's door for guests: a unix socket on which a process becomes a domain.
//
// Fault model: a connected process has our uid (or is root) but is otherwise hostile. It can send garbage, stop
// reading, die at any moment, and do whatever it likes to the memory it was given. It can cost the host its own domain,
// a bounded number of descriptors (4 per port) and the CPU time of its messages; nothing here ever waits for it.
//
// No thread of its own: whoever owns the host's control loop waits for fd() and calls handle(). All calls from one
// thread.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "drivers/base/result.hpp"
#include "drivers/base/units.hpp"
#include "drivers/env/real/real_env.hpp"
#include "drivers/hypervisor/emu/protocol.hpp"
#include "drivers/hypervisor/hypervisor.hpp"

namespace xblk::hypervisor::emu {

struct GuestServerConfig {
  std::string socket_path;
  std::uint32_t connections_max = 128;
  std::uint32_t pages_max = 1u << 18;  // per guest: 1 GiB
  DomainLimits limits;
};

struct AttachedGuest {
  DomId domain;
  pid_t pid = 0;
  std::uint32_t pages = 0;
};

// Called from handle(); each may be empty.
struct GuestServerEvents {
  std::function<void(const AttachedGuest&)> on_guest_attached;  // its domain exists, the guest does not run yet
  std::function<void(DomId)> on_guest_gone;                     // its domain is destroyed
  std::function<void(const std::string&)> on_refused;           // one line for the log
};

class GuestServer {
 public:
  // Replaces a socket that a dead host left behind; EADDRINUSE when a host still answers on it.
  static Result<std::unique_ptr<GuestServer>> listen(Hypervisor<env::RealEnv>& hypervisor, GuestServerConfig config,
                                                     GuestServerEvents events);
  ~GuestServer();  // every guest is destroyed (without on_guest_gone) and the socket removed
  GuestServer(const GuestServer&) = delete;
  GuestServer& operator=(const GuestServer&) = delete;

  [[nodiscard]] int fd() const { return epoll_.get(); }  // readable: handle() has something to do
  void handle();                                         // never blocks
  [[nodiscard]] std::vector<AttachedGuest> guests() const;

 private:
  using DomainPtr = Hypervisor<env::RealEnv>::DomainPtr;
  struct Connection {
    Descriptor socket;
    pid_t pid = 0;
    DomainPtr domain;  // null until attached
  };

  GuestServer(Hypervisor<env::RealEnv>& hypervisor, GuestServerConfig config, GuestServerEvents events);
  Status open();
  void accept_one();
  void serve(Connection& connection);
  Status dispatch(Connection& connection, const Message& request);
  Status attach(Connection& connection, const Message& request);
  Status allocate_port(Connection& connection, const Message& request);
  static Status refuse(Connection& connection, const Message& request, const Error& error);
  void drop(int fd);
  void report(const std::string& line) const;

  Hypervisor<env::RealEnv>& hypervisor_;
  const GuestServerConfig config_;
  const GuestServerEvents events_;
  Descriptor epoll_;
  Descriptor listener_;
  Descriptor
      spare_;  // given up for a moment when descriptors run out, to refuse a connection instead of spinning on it
  bool bound_ = false;
  std::map<int, Connection> connections_;  // by socket
};

}  // namespace xblk::hypervisor::emu
