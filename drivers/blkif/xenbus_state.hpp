// The XenBus states and what each end does about the other's (<xen/io/xenbus.h>, state diagrams in <xen/io/blkif.h>).
//
// Both functions are pure and level-triggered: they look at the two states as they are now, not at what changed, so a
// watch that fires twice, late or not at all changes nothing. A driver calls again after each action that changed its
// own state, and stops at one that did not: `ignore`, `update`, `release`, `remove`.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace xblk::blkif {

enum class XenbusState : std::uint8_t {
  unknown = 0,  // no directory, no key, or a value that is none of these
  initialising = 1,
  init_wait = 2,
  initialised = 3,
  connected = 4,
  closing = 5,
  closed = 6,
  reconfiguring = 7,  // 7 and 8 are for PCI; block drivers ignore them
  reconfigured = 8,
};
inline constexpr std::uint8_t kXenbusStateCount = 9;

std::string_view to_string(XenbusState state);
// The text of a `state` key, or nothing if the key or its directory is missing.
XenbusState parse_xenbus_state(std::optional<std::string_view> key);
// The digit to write into a `state` key.
std::string_view xenbus_state_key(XenbusState state);

enum class BackendAction : std::uint8_t {
  ignore,             // nothing to do
  publish_limits,     // write the offers of probe time; own -> InitWait
  connect,            // read the frontend's keys, map rings, publish properties; own -> Connected
  start_closing,      // go on serving, but the end is near; own -> Closing
  disconnect,         // give back rings, ports, mappings; own -> Closed; the device stays for a reconnect
  prepare_reconnect,  // the frontend starts over: publish the limits again; own -> InitWait
  remove,             // as disconnect, and forget the device: it is gone (directory missing) or was detached (online=0)
};

enum class FrontendAction : std::uint8_t {
  ignore,   // nothing to do
  publish,  // read the limits, allocate rings, write our keys; own -> Initialised
  connect,  // read the device's properties; own -> Connected
  update,   // the backend rewrote its keys while connected: read `sectors` again (live resize)
  close,    // take no new I/O, finish what is in flight; own -> Closing, then Closed
  abandon,  // the backend is gone: fail what is in flight; own -> Closed
  release,  // closed, and the backend holds nothing any more: end grants, free pages
};

std::string_view to_string(BackendAction action);
std::string_view to_string(FrontendAction action);

// `online` is the backend directory's key of that name: 0 once the toolstack detaches the device.
BackendAction on_frontend_state(XenbusState own, XenbusState peer, bool online);
FrontendAction on_backend_state(XenbusState own, XenbusState peer);

// A frontend that starts and finds its backend so belongs to a predecessor that died: it must write Closed and wait
// until this is false before it writes Initialising, else it would connect to a backend that serves the old rings.
constexpr bool backend_serves_predecessor(XenbusState backend) {
  return backend == XenbusState::connected || backend == XenbusState::closing;
}

}  // namespace xblk::blkif
