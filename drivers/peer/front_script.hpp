// What a hostile frontend does to its ring and its grants, as a list. Tests write it down:
//
//   play({Put{.op = Op::write, .id = 7, .parts = {{0}, {1, 0, 3}}}, Push{}, Turn{}, Tear{0}, Notify{1000}});
//
// and fuzzers draw it from bytes (read_front_script). FrontPlayer executes it.
#pragma once

#include <cstdint>
#include <cstring>
#include <variant>
#include <vector>

#include "drivers/base/units.hpp"
#include "drivers/blkif/request.hpp"
#include "drivers/blkif/wire.hpp"
#include "drivers/peer/fuzz_input.hpp"
#include "drivers/peer/ring_words.hpp"
#include "drivers/platform/grants.hpp"

namespace xblk::peer {

// Sectors of one of the player's data pages. A number beyond them is a reference that was never granted.
struct Part {
  std::uint32_t page = 0;
  std::uint8_t first = 0;
  std::uint8_t last = 7;
};

namespace front {

// ---- the ring ----
// A request in the next slot, well-formed unless its fields say otherwise.
struct Put {
  blkif::Op op = blkif::Op::read;
  std::uint64_t id = 0;
  Sectors sector{};
  std::vector<Part> parts;
  Sectors discard{};      // of a discard: its length
  bool indirect = false;  // the parts travel in an indirect page
};
// Any bytes in the next slot.
struct PutBytes {
  blkif::RawRequest raw;
};
// One byte of a slot, the next one being 0 and the one put last 1.
struct Patch {
  std::uint32_t slots_back = 1;
  std::uint8_t offset = 0;
  std::uint8_t value = 0;
};
// Publishes what was put, and sends an event.
struct Push {};
using peer::Index;
using peer::Notify;
using peer::SetIndex;
// The backend has the CPU for so many dispatch rounds.
struct Turn {
  unsigned rounds = 1;
};

// ---- grants of data pages ----
// As blkfront: only while the backend does not hold the page.
struct EndGrant {
  std::uint32_t page = 0;
};
// Whatever the backend holds.
struct Tear {
  std::uint32_t page = 0;
};
// The page's entry names another page from now on, under the same reference.
struct Regrant {
  std::uint32_t page = 0;
  std::uint32_t to = 0;
  platform::Access access = platform::Access::read_write;
};

using Operation = std::variant<Put, PutBytes, Patch, Push, SetIndex, Notify, Turn, EndGrant, Tear, Regrant>;

}  // namespace front

using FrontScript = std::vector<front::Operation>;

// One operation: a byte for its kind, then its fields.
inline front::Operation read_front_operation(FuzzInput& input, std::uint32_t pages) {
  const auto part = [&] {
    const std::uint8_t sectors = input.take();
    return Part{input.below(pages + 1), static_cast<std::uint8_t>(sectors & 15),
                static_cast<std::uint8_t>(sectors >> 4)};
  };
  switch (input.below(10)) {
    default: {
      front::Put put;
      put.op = static_cast<blkif::Op>(input.below(8));
      put.id = input.take<std::uint64_t>();
      put.sector = Sectors(input.take<std::uint16_t>() % 9000u);  // a little more than a device of 4 MiB has
      put.discard = Sectors(input.take());
      const std::uint32_t shape = input.take();
      put.indirect = (shape & 0x80) != 0;
      const std::uint32_t parts = put.indirect ? shape & 0x3f : shape % 12;
      for (std::uint32_t i = 0; i < parts; ++i) put.parts.push_back(part());
      return put;
    }
    case 1: {
      front::PutBytes put{};
      const auto bytes = input.bytes(put.raw.bytes.size());
      if (!bytes.empty()) std::memcpy(put.raw.bytes.data(), bytes.data(), bytes.size());
      return put;
    }
    case 2: {
      const std::uint32_t slots_back = input.below(4);
      const std::uint8_t offset = input.take();
      return front::Patch{slots_back, offset, input.take()};
    }
    case 3:
      return front::Push{};
    case 4: {
      const auto index = static_cast<front::Index>(input.below(4));
      return front::SetIndex{index, input.take<std::uint32_t>()};
    }
    case 5:
      return front::Notify{1 + input.below(8)};
    case 6:
      return front::Turn{1 + input.below(4)};
    case 7:
      return front::EndGrant{input.below(pages)};
    case 8:
      return front::Tear{input.below(pages)};
    case 9: {
      const std::uint32_t page = input.below(pages);
      const std::uint32_t to = input.below(pages);
      return front::Regrant{page, to, input.below(2) == 0 ? platform::Access::read_write : platform::Access::read_only};
    }
  }
}

}  // namespace xblk::peer
