// XenbusRing: the guest's end of one xenstore ring page (struct xenstore_domain_interface in xs_wire.h).
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

struct xenstore_domain_interface;

namespace xblk::hypervisor {

class XenbusRing {
 public:
  explicit XenbusRing(std::byte* page);

  // Both return false when the daemon has given the connection up or the indexes are impossible.
  // Sends from the front of `bytes` as much as fits and erases it; `moved` tells that the daemon has to be notified.
  [[nodiscard]] bool send(std::string& bytes, bool& moved);
  // Appends what has arrived; `moved` as above, because the daemon may wait for space.
  [[nodiscard]] bool receive(std::string& bytes, bool& moved);

 private:
  xenstore_domain_interface& shared_;
};

}  // namespace xblk::hypervisor
