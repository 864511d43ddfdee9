#include "drivers/blkif/xenbus_state.hpp"

#include <gtest/gtest.h>

#include <array>
#include <set>
#include <string>
#include <tuple>

#include <xen/io/xenbus.h>

namespace xblk::blkif {
namespace {

using enum XenbusState;

static_assert(XenbusStateUnknown == static_cast<int>(unknown) &&
              XenbusStateInitialising == static_cast<int>(initialising));
static_assert(XenbusStateInitWait == static_cast<int>(init_wait) &&
              XenbusStateConnected == static_cast<int>(connected));
static_assert(XenbusStateInitialised == static_cast<int>(initialised) && XenbusStateClosed == static_cast<int>(closed));
static_assert(XenbusStateReconfigured == static_cast<int>(reconfigured) &&
              XenbusStateClosing == static_cast<int>(closing));

constexpr XenbusState state(std::size_t i) {
  return static_cast<XenbusState>(i);
}

// One row for each own state, one column for each state of the peer. Read it beside the diagrams of blkif.h.
using BackendTable = std::array<std::array<BackendAction, kXenbusStateCount>, kXenbusStateCount>;
using FrontendTable = std::array<std::array<FrontendAction, kXenbusStateCount>, kXenbusStateCount>;

namespace back {
constexpr auto __ = BackendAction::ignore;
constexpr auto PL = BackendAction::publish_limits;
constexpr auto CO = BackendAction::connect;
constexpr auto SC = BackendAction::start_closing;
constexpr auto DI = BackendAction::disconnect;
constexpr auto PR = BackendAction::prepare_reconnect;
constexpr auto RM = BackendAction::remove;
constexpr BackendTable kOnline = {{
    // peer: 0   1   2   3   4   5   6   7   8
    {__, __, __, __, __, __, __, __, __},  // own 0 unknown
    {RM, PL, __, PL, PL, PL, PL, __, __},  // own 1 initialising
    {RM, __, __, CO, CO, SC, DI, __, __},  // own 2 init_wait
    {RM, __, __, CO, CO, SC, DI, __, __},  // own 3 initialised
    {RM, DI, __, __, __, SC, DI, __, __},  // own 4 connected
    {RM, DI, __, __, __, __, DI, __, __},  // own 5 closing
    {RM, PR, __, PR, PR, __, __, __, __},  // own 6 closed
    {__, __, __, __, __, __, __, __, __},  // own 7 reconfiguring
    {__, __, __, __, __, __, __, __, __},  // own 8 reconfigured
}};
constexpr BackendTable kOffline = {{
    // peer: 0   1   2   3   4   5   6   7   8
    {__, __, __, __, __, __, __, __, __},  // own 0 unknown
    {RM, RM, __, SC, SC, SC, RM, __, __},  // own 1 initialising
    {RM, RM, __, SC, SC, SC, RM, __, __},  // own 2 init_wait
    {RM, RM, __, SC, SC, SC, RM, __, __},  // own 3 initialised
    {RM, RM, __, SC, SC, SC, RM, __, __},  // own 4 connected
    {RM, RM, __, __, __, __, RM, __, __},  // own 5 closing
    {RM, RM, __, RM, RM, __, RM, __, __},  // own 6 closed
    {__, __, __, __, __, __, __, __, __},  // own 7 reconfiguring
    {__, __, __, __, __, __, __, __, __},  // own 8 reconfigured
}};
}  // namespace back

namespace front {
constexpr auto __ = FrontendAction::ignore;
constexpr auto PU = FrontendAction::publish;
constexpr auto CO = FrontendAction::connect;
constexpr auto UP = FrontendAction::update;
constexpr auto CL = FrontendAction::close;
constexpr auto AB = FrontendAction::abandon;
constexpr auto RE = FrontendAction::release;
constexpr FrontendTable kTable = {{
    // peer: 0   1   2   3   4   5   6   7   8
    {__, __, __, __, __, __, __, __, __},  // own 0 unknown
    {AB, __, PU, PU, PU, __, __, __, __},  // own 1 initialising
    {__, __, __, __, __, __, __, __, __},  // own 2 init_wait
    {AB, __, __, __, CO, CL, AB, __, __},  // own 3 initialised
    {AB, __, __, __, UP, CL, AB, __, __},  // own 4 connected
    {AB, __, __, __, __, __, AB, __, __},  // own 5 closing
    {RE, RE, RE, __, __, __, RE, __, __},  // own 6 closed
    {__, __, __, __, __, __, __, __, __},  // own 7 reconfiguring
    {__, __, __, __, __, __, __, __, __},  // own 8 reconfigured
}};
}  // namespace front

TEST(BackendStates, EveryPairIsAsTabled) {
  for (const bool online : {false, true}) {
    const BackendTable& table = online ? back::kOnline : back::kOffline;
    for (std::size_t own = 0; own < kXenbusStateCount; ++own) {
      for (std::size_t peer = 0; peer < kXenbusStateCount; ++peer) {
        EXPECT_EQ(to_string(on_frontend_state(state(own), state(peer), online)), to_string(table[own][peer]))
            << "own " << to_string(state(own)) << ", peer " << to_string(state(peer)) << ", online " << online;
      }
    }
  }
}

TEST(FrontendStates, EveryPairIsAsTabled) {
  for (std::size_t own = 0; own < kXenbusStateCount; ++own) {
    for (std::size_t peer = 0; peer < kXenbusStateCount; ++peer) {
      EXPECT_EQ(to_string(on_backend_state(state(own), state(peer))), to_string(front::kTable[own][peer]))
          << "own " << to_string(state(own)) << ", peer " << to_string(state(peer));
    }
  }
}

// The state after an action, as its comment says; `remove` ends the device.
XenbusState after(BackendAction action, XenbusState own) {
  switch (action) {
    case BackendAction::publish_limits:
    case BackendAction::prepare_reconnect:
      return init_wait;
    case BackendAction::connect:
      return connected;
    case BackendAction::start_closing:
      return closing;
    case BackendAction::disconnect:
      return closed;
    default:
      return own;
  }
}
XenbusState after(FrontendAction action, XenbusState own) {
  switch (action) {
    case FrontendAction::publish:
      return initialised;
    case FrontendAction::connect:
      return connected;
    case FrontendAction::close:
    case FrontendAction::abandon:
      return closed;
    default:
      return own;
  }
}

// A driver that calls again until its state stands comes to rest, whatever the peer shows.
TEST(BackendStates, SettleForEveryStateOfThePeer) {
  for (const bool online : {false, true}) {
    for (std::size_t start = 0; start < kXenbusStateCount; ++start) {
      for (std::size_t peer = 0; peer < kXenbusStateCount; ++peer) {
        XenbusState own = state(start);
        int steps = 0;
        for (; steps < 10; ++steps) {
          const XenbusState next = after(on_frontend_state(own, state(peer), online), own);
          if (next == own) break;
          own = next;
        }
        EXPECT_LE(steps, 3) << "own " << start << ", peer " << peer << ", online " << online;
      }
    }
  }
}

struct Pair {
  XenbusState front = initialising;
  XenbusState back = initialising;
  std::set<std::string> done;

  void front_turn() {
    const auto action = on_backend_state(front, back);
    done.insert("front " + std::string(to_string(action)));
    front = after(action, front);
  }
  void back_turn(bool online = true) {
    const auto action = on_frontend_state(back, front, online);
    done.insert("back " + std::string(to_string(action)));
    back = after(action, back);
  }
};

// Two drivers of ours, in every order of the first ten turns, always connect, each through publish and connect.
TEST(BothEnds, ConnectInEveryOrder) {
  for (unsigned order = 0; order < 1u << 10; ++order) {
    Pair pair;
    for (unsigned turn = 0; turn < 10; ++turn) (order >> turn & 1) != 0 ? pair.front_turn() : pair.back_turn();
    for (int i = 0; i < 4; ++i) {
      pair.front_turn();
      pair.back_turn();
    }
    EXPECT_EQ(std::tuple(pair.front, pair.back), std::tuple(connected, connected)) << "order " << order;
    EXPECT_TRUE(pair.done.contains("front publish") && pair.done.contains("back connect")) << "order " << order;
    EXPECT_FALSE(pair.done.contains("front abandon") || pair.done.contains("back remove")) << "order " << order;
  }
}

// The frontend closes and starts over; the backend may miss any state between.
TEST(BothEnds, ReconnectInEveryOrder) {
  for (unsigned order = 0; order < 1u << 8; ++order) {
    Pair pair{connected, connected, {}};
    pair.front = closing;
    if ((order & 1) != 0) pair.back_turn();
    pair.front = closed;
    pair.back_turn();  // the frontend waits for this: its pages may be mapped until then
    if ((order & 2) != 0) pair.back_turn();
    ASSERT_EQ(on_backend_state(pair.front, pair.back), FrontendAction::release);
    pair.front = initialising;
    for (unsigned turn = 2; turn < 8; ++turn) (order >> turn & 1) != 0 ? pair.front_turn() : pair.back_turn();
    for (int i = 0; i < 4; ++i) {
      pair.back_turn();
      pair.front_turn();
    }
    EXPECT_EQ(std::tuple(pair.front, pair.back), std::tuple(connected, connected)) << "order " << order;
    EXPECT_TRUE(pair.done.contains("back disconnect") && pair.done.contains("back prepare_reconnect"));
  }
}

TEST(BothEnds, DetachClosesBothAndRemovesTheDevice) {
  Pair pair{connected, connected, {}};
  for (int i = 0; i < 3; ++i) {
    pair.back_turn(false);
    pair.front_turn();
  }
  EXPECT_EQ(pair.front, closed);
  EXPECT_EQ(on_frontend_state(pair.back, pair.front, false), BackendAction::remove);
  EXPECT_TRUE(pair.done.contains("back start_closing") && pair.done.contains("front close"));
}

TEST(Predecessor, IsServedWhileTheBackendIsConnectedOrClosing) {
  for (std::size_t i = 0; i < kXenbusStateCount; ++i) {
    EXPECT_EQ(backend_serves_predecessor(state(i)), state(i) == connected || state(i) == closing) << i;
  }
}

TEST(StateKey, RoundTripsAndReadsJunkAsUnknown) {
  for (std::size_t i = 0; i < kXenbusStateCount; ++i)
    EXPECT_EQ(parse_xenbus_state(xenbus_state_key(state(i))), state(i));
  EXPECT_EQ(parse_xenbus_state(std::nullopt), unknown);
  for (const std::string_view junk : {"", "9", "-1", "4 ", "44", "Connected"})
    EXPECT_EQ(parse_xenbus_state(junk), unknown);
}

}  // namespace
}  // namespace xblk::blkif
