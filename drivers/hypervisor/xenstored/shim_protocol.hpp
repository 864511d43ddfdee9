// What the shim inside xenstored and the service in the host process say to each other. Both are built from the same
// tree and live in the same run, so there is no version; plain structs over SOCK_SEQPACKET keep message boundaries.
//
// Two sockets: the control socket, inherited by xenstored, carries strictly one request and one reply at a time; the
// event socket, handed over by kOpenEvents, carries one ShimEvent per event in either direction.
#pragma once

#include <stdint.h>

namespace xblk::hypervisor {

// Environment variable that names the inherited control socket (a file descriptor number).
inline constexpr const char* kShimControlVariable = "XBLK_XENSTORED_CONTROL_FD";

enum class ShimOperation : uint32_t {
  kOpenEvents,  // reply carries the event socket
  kMapRing,     // domain's ring page; reply carries its memfd
  kDomainInfo,  // reply value: DomainState
  kBind,        // interdomain event channel to `domain`; reply value: local port
  kBindVirq,    // VIRQ_DOM_EXC; reply value: local port
  kUnbind,      // port in `port`
};

enum class DomainState : uint32_t { kAbsent, kRunning, kShutdown };

struct ShimRequest {
  ShimOperation operation;
  uint32_t domain;
  uint32_t port;
};

struct ShimReply {
  int32_t error;  // errno value, 0 when all is well
  uint32_t value;
};

struct ShimEvent {
  uint32_t port;
};

}  // namespace xblk::hypervisor
