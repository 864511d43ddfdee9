// Clients that send anything, a daemon that answers anything: the multiplexer keeps its own queues well-formed.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "drivers/base/check.hpp"
#include "drivers/hypervisor/xenstored/xenbus_mux.hpp"

namespace xblk::hypervisor {
namespace {

// Every queue holds whole messages within the protocol's limit.
void check_queue(std::string& queue) {
  std::size_t at = 0;
  while (at < queue.size()) {
    std::uint32_t header[4];
    XBLK_CHECK(queue.size() - at >= sizeof header, "a queue holds whole headers");
    std::memcpy(header, queue.data() + at, sizeof header);
    XBLK_CHECK(header[3] <= 4096 && queue.size() - at - sizeof header >= header[3], "and whole payloads");
    at += sizeof header + header[3];
  }
  queue.clear();
}

class Session {
 public:
  // One step: who acts, then how many bytes of the input they send. False: the daemon made no sense, the device ends.
  bool step(std::uint8_t action, std::string_view bytes) {
    if (action % 8 == 0 || clients_.empty()) clients_.push_back(mux_.add_client());
    const std::size_t index = action / 8 % clients_.size();
    const XenbusMux::ClientId id = clients_[index];
    bool alive = true;
    if (action % 8 == 1) {
      drop(index);
    } else if (action % 8 < 5) {
      if (mux_.wants_input(id) && !mux_.from_client(id, bytes)) drop(index);
    } else {
      alive = mux_.from_daemon(bytes);
    }
    check_queue(mux_.to_daemon());
    for (const XenbusMux::ClientId client : clients_) check_queue(mux_.to_client(client));
    return alive;
  }

 private:
  void drop(std::size_t index) {
    mux_.remove_client(clients_[index]);
    clients_.erase(clients_.begin() + static_cast<std::ptrdiff_t>(index));
  }

  XenbusMux mux_;
  std::vector<XenbusMux::ClientId> clients_;
};

}  // namespace
}  // namespace xblk::hypervisor

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  xblk::hypervisor::Session session;
  std::string_view input(reinterpret_cast<const char*>(data), size);
  while (input.size() >= 2) {
    const auto action = static_cast<std::uint8_t>(input[0]);
    const std::size_t length = std::min<std::size_t>(static_cast<std::uint8_t>(input[1]), input.size() - 2);
    if (!session.step(action, input.substr(2, length))) break;
    input.remove_prefix(2 + length);
  }
  return 0;
}
