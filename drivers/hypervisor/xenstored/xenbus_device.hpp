// XenbusDevice: what /dev/xen/xenbus is inside a guest, as a unix socket. Any number of clients of one guest connect
// and speak the plain xenstore wire; XenbusMux puts them on the guest's ring page.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "drivers/base/result.hpp"
#include "drivers/base/unique_fd.hpp"
#include "drivers/hypervisor/xenstored/poll_loop.hpp"
#include "drivers/hypervisor/xenstored/xenbus_mux.hpp"
#include "drivers/hypervisor/xenstored/xenbus_ring.hpp"

namespace xblk::hypervisor {

class XenbusDevice {
 public:
  static constexpr std::size_t kMaxClients = 256;

  // `ring_page` outlives the device. `notify` sends the guest's event to xenstored. Everything runs on the loop's
  // thread.
  static Result<std::unique_ptr<XenbusDevice>> create(PollLoop& loop, const std::string& path, std::byte* ring_page,
                                                      std::function<void()> notify);
  ~XenbusDevice();  // disconnects every client and removes the socket

  void on_event();  // xenstored sent the guest an event

 private:
  struct Client {
    UniqueFd socket;
    XenbusMux::ClientId id;
  };

  XenbusDevice(PollLoop& loop, std::string path, UniqueFd listener, std::byte* ring_page, std::function<void()> notify);
  void accept_clients();
  void on_client(int fd, std::uint32_t ready);
  [[nodiscard]] bool read_client(const Client& client);
  [[nodiscard]] bool write_client(const Client& client);
  void drop_client(int fd);
  void pump();
  [[nodiscard]] bool exchange_with_daemon(bool& moved);
  bool serve_clients();
  void fail_all();

  PollLoop& loop_;
  std::string path_;
  UniqueFd listener_;
  XenbusRing ring_;
  std::function<void()> notify_;
  XenbusMux mux_;
  std::map<int, Client> clients_;  // by socket
};

}  // namespace xblk::hypervisor
