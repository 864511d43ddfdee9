// What a hostile backend does to its frontend, and what the frontend's user does meanwhile, as a list:
//
//   play({Submit{.page = 0}, Respond{.id_xor = 1u << 16}, Notify{1000}, State{"4"}, Reap{}});
//
// Tests write it down, fuzzers draw it from bytes (read_back_operation).
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <string>
#include <variant>
#include <vector>

#include "drivers/base/units.hpp"
#include "drivers/blkif/wire.hpp"
#include "drivers/peer/fuzz_input.hpp"
#include "drivers/peer/ring_words.hpp"

namespace xblk::peer {

namespace back {

// ---- the ring ----
// An answer to one of the open requests, the oldest being 0; true unless its fields say otherwise.
struct Respond {
  std::uint32_t request = 0;
  blkif::ResponseStatus status = blkif::ResponseStatus::okay;
  std::uint64_t id_xor = 0;
  std::uint8_t op_xor = 0;
  bool again = false;  // the request stays open: a later answer to it is a second one
};
// Any bytes in the next slot, published.
struct RespondBytes {
  blkif::RawResponse raw;
};
using peer::Index;
using peer::Notify;
using peer::SetIndex;

// ---- the frontend's pages ----
// Maps the page of a segment of an open request, writes into it, and keeps it.
struct Hold {
  std::uint32_t request = 0;
  std::uint32_t segment = 0;
};
// The same by a reference that nobody told it.
struct HoldGuess {
  std::uint32_t gref = 0;
};
// Gives everything back that it keeps.
struct LetGo {};

// ---- the key store ----
struct Key {
  std::string name;
  std::string value;
};
struct RemoveKey {
  std::string name;
};
struct State {
  std::string value;
};
// As a good backend does, where the frontend waits for it: limits, rings, properties.
struct Negotiate {};
// Takes its hands off the ring.
struct Detach {};

// ---- the frontend's user and its control thread ----
enum class Io : std::uint8_t { read, write, flush, discard, barrier };
struct Submit {
  Io op = Io::read;
  std::uint32_t page = 0;     // of the user's buffer
  std::uint32_t sectors = 8;  // to the end of that buffer at most
  std::uint16_t sector = 0;
};
struct Reap {
  std::uint32_t wait_us = 0;
};
struct Turn {};
struct Reconnect {};
struct Close {};

using Operation = std::variant<Respond, RespondBytes, SetIndex, Notify, Hold, HoldGuess, LetGo, Key, RemoveKey, State,
                               Negotiate, Detach, Submit, Reap, Turn, Reconnect, Close>;

}  // namespace back

using BackScript = std::vector<back::Operation>;

// Keys that a frontend reads, and values worth trying.
inline constexpr std::array kBackendKeys = {"multi-queue-max-queues",
                                            "max-ring-page-order",
                                            "feature-max-indirect-segments",
                                            "sectors",
                                            "sector-size",
                                            "physical-sector-size",
                                            "info",
                                            "feature-flush-cache",
                                            "feature-barrier",
                                            "feature-discard",
                                            "discard-granularity",
                                            "discard-alignment",
                                            "discard-secure",
                                            "feature-persistent",
                                            "xblk-statistics"};
inline constexpr std::array kHostileValues = {"0",
                                              "1",
                                              "2",
                                              "4",
                                              "8",
                                              "31",
                                              "64",
                                              "512",
                                              "513",
                                              "-1",
                                              "12",
                                              "65536",
                                              "4294967295",
                                              "8192",
                                              "",
                                              "junk",
                                              "1\n",
                                              "4096",
                                              "18446744073709551615",
                                              "0x10"};

inline back::Operation read_back_operation(FuzzInput& input) {
  switch (input.below(20)) {
    default:
      return back::Turn{};
    case 1:
    case 2: {
      back::Respond respond;
      respond.request = input.below(8);
      const std::uint8_t how = input.take();
      respond.status = static_cast<blkif::ResponseStatus>(-static_cast<int>(how & 3));
      respond.again = (how & 4) != 0;
      if ((how & 8) != 0) respond.op_xor = input.take();
      if ((how & 16) != 0) respond.id_xor = input.take<std::uint64_t>();
      return respond;
    }
    case 3: {
      back::RespondBytes respond{};
      const auto bytes = input.bytes(respond.raw.bytes.size());
      if (!bytes.empty()) std::memcpy(respond.raw.bytes.data(), bytes.data(), bytes.size());
      return respond;
    }
    case 4: {
      const auto index = static_cast<back::Index>(input.below(4));
      return back::SetIndex{index, input.take<std::uint32_t>()};
    }
    case 5:
      return back::Notify{1 + input.below(8)};
    case 6: {
      const std::uint32_t request = input.below(8);
      return back::Hold{request, input.below(16)};
    }
    case 7:
      return back::HoldGuess{input.take<std::uint16_t>()};
    case 8:
      return back::LetGo{};
    case 9: {
      const auto* name = kBackendKeys[input.below(kBackendKeys.size())];
      return back::Key{name, kHostileValues[input.below(kHostileValues.size())]};
    }
    case 10:
      return back::RemoveKey{kBackendKeys[input.below(kBackendKeys.size())]};
    case 11:
      return back::State{std::to_string(input.below(10))};
    case 12:
      return back::Negotiate{};
    case 13:
      return back::Detach{};
    case 14:
    case 15: {
      back::Submit submit;
      submit.op = static_cast<back::Io>(input.below(5));
      submit.page = input.take();
      submit.sectors = input.take();
      submit.sector = input.take<std::uint16_t>();
      return submit;
    }
    case 16:
      return back::Reap{input.take()};
    case 17:
      return back::Reconnect{};
    case 18:
      return back::Close{};
  }
}

}  // namespace xblk::peer
