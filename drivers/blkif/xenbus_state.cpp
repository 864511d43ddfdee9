#include "drivers/blkif/xenbus_state.hpp"

#include <array>

#include "drivers/base/check.hpp"

namespace xblk::blkif {
namespace {

using enum XenbusState;

constexpr std::array<std::string_view, kXenbusStateCount> kNames = {"Unknown",     "Initialising",  "InitWait",
                                                                    "Initialised", "Connected",     "Closing",
                                                                    "Closed",      "Reconfiguring", "Reconfigured"};
constexpr std::array<std::string_view, kXenbusStateCount> kKeys = {"0", "1", "2", "3", "4", "5", "6", "7", "8"};

// States a block end never has itself. A frontend is never in InitWait, but that differs by end.
constexpr bool no_block_state(XenbusState own) {
  return own == unknown || own == reconfiguring || own == reconfigured;
}

// The frontend has no connection and asks for none.
BackendAction on_idle_frontend(XenbusState own, XenbusState peer) {
  switch (own) {
    case initialising:
      return BackendAction::publish_limits;
    case init_wait:
    case initialised:
      return peer == closed ? BackendAction::disconnect : BackendAction::ignore;
    // Initialising without Closed before: the frontend died and started again.
    case connected:
    case closing:
      return BackendAction::disconnect;
    default:
      return peer == initialising ? BackendAction::prepare_reconnect : BackendAction::ignore;
  }
}

// The frontend offers rings. Initialised and Connected are alike: MirageOS writes Connected at once, and a watch may
// miss the state between.
BackendAction on_offering_frontend(XenbusState own, bool online) {
  switch (own) {
    case initialising:
      return online ? BackendAction::publish_limits : BackendAction::start_closing;
    case init_wait:
    case initialised:
      return online ? BackendAction::connect : BackendAction::start_closing;
    case connected:
      return online ? BackendAction::ignore : BackendAction::start_closing;
    case closing:
      return BackendAction::ignore;  // we asked it to close; it has not seen that yet
    // Its Closed and Initialising came and went unseen; the limits must stand before its rings are read.
    default:
      return online ? BackendAction::prepare_reconnect : BackendAction::remove;
  }
}

BackendAction on_closing_frontend(XenbusState own, bool online) {
  switch (own) {
    case initialising:
      return online ? BackendAction::publish_limits : BackendAction::start_closing;
    case init_wait:
    case initialised:
    case connected:
      return BackendAction::start_closing;
    default:
      return BackendAction::ignore;
  }
}

}  // namespace

std::string_view to_string(XenbusState state) {
  return kNames[static_cast<std::size_t>(state)];
}

XenbusState parse_xenbus_state(std::optional<std::string_view> key) {
  for (std::size_t i = 0; key && i < kKeys.size(); ++i) {
    if (*key == kKeys[i]) return static_cast<XenbusState>(i);
  }
  return unknown;
}

std::string_view xenbus_state_key(XenbusState state) {
  return kKeys[static_cast<std::size_t>(state)];
}

BackendAction on_frontend_state(XenbusState own, XenbusState peer, bool online) {
  if (no_block_state(own)) return BackendAction::ignore;
  switch (peer) {
    case unknown:
      return BackendAction::remove;
    case initialising:
    case closed:
      return online ? on_idle_frontend(own, peer) : BackendAction::remove;
    case initialised:
    case connected:
      return on_offering_frontend(own, online);
    case closing:
      return on_closing_frontend(own, online);
    case init_wait:  // not a state of a frontend
    case reconfiguring:
    case reconfigured:
      return BackendAction::ignore;
  }
  XBLK_CHECK(false, "not a XenbusState");
}

FrontendAction on_backend_state(XenbusState own, XenbusState peer) {
  switch (own) {
    case initialising:
      // A backend that skips InitWait works with default limits (blkif.h); publishing is the work of the skipped state.
      // Closing and Closed are the past: the backend turns to InitWait once it sees us Initialising.
      if (peer == init_wait || peer == initialised || peer == connected) return FrontendAction::publish;
      return peer == unknown ? FrontendAction::abandon : FrontendAction::ignore;
    case initialised:
    case connected:
      if (peer == unknown || peer == closed) return FrontendAction::abandon;
      if (peer == closing) return FrontendAction::close;
      // A second InitWait must not set up the rings again: the backend would read half of each.
      if (peer != connected) return FrontendAction::ignore;
      return own == initialised ? FrontendAction::connect : FrontendAction::update;
    case closing:
      return peer == unknown || peer == closed ? FrontendAction::abandon : FrontendAction::ignore;
    case closed:
      // Until the backend has left Connected and Closing it may have our pages mapped.
      if (peer == unknown || peer == initialising || peer == init_wait || peer == closed)
        return FrontendAction::release;
      return FrontendAction::ignore;
    case unknown:
    case init_wait:  // not a state of a frontend
    case reconfiguring:
    case reconfigured:
      return FrontendAction::ignore;
  }
  XBLK_CHECK(false, "not a XenbusState");
}

std::string_view to_string(BackendAction action) {
  switch (action) {
    case BackendAction::ignore:
      return "ignore";
    case BackendAction::publish_limits:
      return "publish_limits";
    case BackendAction::connect:
      return "connect";
    case BackendAction::start_closing:
      return "start_closing";
    case BackendAction::disconnect:
      return "disconnect";
    case BackendAction::prepare_reconnect:
      return "prepare_reconnect";
    case BackendAction::remove:
      return "remove";
  }
  XBLK_CHECK(false, "not a BackendAction");
}

std::string_view to_string(FrontendAction action) {
  switch (action) {
    case FrontendAction::ignore:
      return "ignore";
    case FrontendAction::publish:
      return "publish";
    case FrontendAction::connect:
      return "connect";
    case FrontendAction::update:
      return "update";
    case FrontendAction::close:
      return "close";
    case FrontendAction::abandon:
      return "abandon";
    case FrontendAction::release:
      return "release";
  }
  XBLK_CHECK(false, "not a FrontendAction");
}

}  // namespace xblk::blkif
