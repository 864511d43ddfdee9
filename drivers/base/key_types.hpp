// The words that every key store shares: the client of xenstore and the in-process store of virtual time.
#pragma once

#include <compare>
#include <string>

#include "drivers/base/units.hpp"

namespace xblk {

// What a watch reports: the changed path (relative when the watch was) and the token given at registration.
struct WatchEvent {
  std::string path;
  std::string token;
  friend auto operator<=>(const WatchEvent&, const WatchEvent&) = default;
};

// One entry of a node's permission list. In the first entry `domain` is the owner and the two flags are what every
// domain not listed may do; the owner itself always may read and write (xenstore.h, xs_set_permissions).
struct KeyPermission {
  DomId domain;
  bool read = false;
  bool write = false;
  friend bool operator==(const KeyPermission&, const KeyPermission&) = default;
};

}  // namespace xblk
