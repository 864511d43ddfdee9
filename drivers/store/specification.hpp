// What the `params` key says about a backing store, taken apart:
//
//   null:SIZE                       accepts everything, keeps nothing
//   ram:SIZE                        memory of the backend's process
//   file:PATH                       an existing file or block device, with the size it has
//   file:SIZE:PATH                  a file of SIZE, created or resized; a block device: its first SIZE bytes
//   throttled:RATE:ROUNDTRIP:STORE  any of these behind a link, such as throttled:70MB/s:500us:ram:1GiB
//
// SIZE takes KiB, MiB, GiB; RATE MB/s or MiB/s; ROUNDTRIP ns, us, ms. PATH is absolute and may contain colons.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "drivers/base/result.hpp"
#include "drivers/base/units.hpp"

namespace xblk::store {

// What a throttled store puts between the ring and its inner store.
struct Link {
  std::uint64_t bytes_per_second = 0;
  Nanos round_trip{};
  friend bool operator==(const Link&, const Link&) = default;
};

struct Specification {
  enum class Kind : std::uint8_t { null, ram, file };
  Kind kind = Kind::null;
  Sectors size{};           // 0: as large as the file is
  std::string path;         // of a file
  std::vector<Link> links;  // the outermost first

  // The same store, at most of another size: a device resizes it live instead of opening another one.
  [[nodiscard]] bool same_store_as(const Specification& other) const {
    return kind == other.kind && path == other.path && links == other.links;
  }
};

// The error says what is wrong with which part, and what is allowed there.
Result<Specification> parse_specification(const std::string& specification);

}  // namespace xblk::store
