#include "drivers/hypervisor/xenstored/xenbus_device.hpp"

#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <vector>

#include "drivers/hypervisor/xenstored/unix_socket.hpp"

namespace xblk::hypervisor {

Result<std::unique_ptr<XenbusDevice>> XenbusDevice::create(PollLoop& loop, const std::string& path,
                                                           std::byte* ring_page, std::function<void()> notify) {
  auto listener = listen_at(path);
  if (!listener) return tl::unexpected(listener.error());
  std::unique_ptr<XenbusDevice> device(
      new XenbusDevice(loop, path, std::move(*listener), ring_page, std::move(notify)));
  Status added =
      loop.add(device->listener_.get(), EPOLLIN, [self = device.get()](std::uint32_t) { self->accept_clients(); });
  if (!added) return tl::unexpected(added.error());
  return device;
}

XenbusDevice::XenbusDevice(PollLoop& loop, std::string path, UniqueFd listener, std::byte* ring_page,
                           std::function<void()> notify)
    : loop_(loop),
      path_(std::move(path)),
      listener_(std::move(listener)),
      ring_(ring_page),
      notify_(std::move(notify)) {}

XenbusDevice::~XenbusDevice() {
  fail_all();
  loop_.remove(listener_.get());
  ::unlink(path_.c_str());
}

void XenbusDevice::accept_clients() {
  while (true) {
    UniqueFd socket(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!socket) return;
    if (clients_.size() >= kMaxClients) continue;  // closed at once: the client sees the end of the stream
    const int fd = socket.get();
    if (!loop_.add(fd, EPOLLIN, [this, fd](std::uint32_t ready) { on_client(fd, ready); })) continue;
    clients_[fd] = {std::move(socket), mux_.add_client()};
  }
}

void XenbusDevice::on_client(int fd, std::uint32_t ready) {
  const Client& client = clients_.at(fd);
  const bool gone = (ready & (EPOLLHUP | EPOLLERR)) != 0;
  const bool stalled =
      !mux_.wants_input(client.id);  // its last requests will not be read: nobody waits for the answers
  const bool readable = gone || (ready & EPOLLIN) != 0;
  if ((gone && stalled) || (readable && !read_client(client))) drop_client(fd);
  pump();
}

bool XenbusDevice::read_client(const Client& client) {
  std::array<char, 8192> buffer;
  while (mux_.wants_input(client.id)) {
    const ssize_t got = ::recv(client.socket.get(), buffer.data(), buffer.size(), 0);
    if (got < 0) return errno == EAGAIN || errno == EINTR;
    if (got == 0) return false;
    if (!mux_.from_client(client.id, std::string_view(buffer.data(), static_cast<std::size_t>(got)))) return false;
  }
  return true;
}

bool XenbusDevice::write_client(const Client& client) {
  std::string& output = mux_.to_client(client.id);
  while (!output.empty()) {
    const ssize_t sent = ::send(client.socket.get(), output.data(), output.size(), MSG_NOSIGNAL);
    if (sent < 0) return errno == EAGAIN || errno == EINTR;
    output.erase(0, static_cast<std::size_t>(sent));
  }
  return true;
}

void XenbusDevice::drop_client(int fd) {
  mux_.remove_client(clients_.at(fd).id);
  loop_.remove(fd);
  clients_.erase(fd);
}

void XenbusDevice::on_event() {
  pump();
}

// Moves everything that can move: client requests to the ring, answers and events back to their clients. Serving or
// dropping a client may queue more for the daemon, so it goes on until nothing moves. It ends: sockets are read by
// on_client() only, so what is queued is bounded.
void XenbusDevice::pump() {
  bool moved;
  do {
    moved = false;
    if (!exchange_with_daemon(moved)) return fail_all();
    moved |= serve_clients();
  } while (moved);
}

bool XenbusDevice::exchange_with_daemon(bool& moved) {
  std::string arrived;
  const bool sane = ring_.send(mux_.to_daemon(), moved) && ring_.receive(arrived, moved) && mux_.from_daemon(arrived);
  if (moved) notify_();
  return sane;
}

// True when a client was dropped: what it left behind is now queued for the daemon.
bool XenbusDevice::serve_clients() {
  const std::vector<XenbusMux::ClientId> overflowed = mux_.take_overflowed();
  std::vector<int> lost;
  for (const auto& [fd, client] : clients_) {
    const bool too_slow = std::find(overflowed.begin(), overflowed.end(), client.id) != overflowed.end();
    if (too_slow || !mux_.resume(client.id) || !write_client(client)) {
      lost.push_back(fd);
      continue;
    }
    std::uint32_t interest = 0;
    if (mux_.wants_input(client.id)) interest |= EPOLLIN;
    if (!mux_.to_client(client.id).empty()) interest |= EPOLLOUT;
    loop_.modify(fd, interest);
  }
  for (const int fd : lost) drop_client(fd);
  return !lost.empty();
}

void XenbusDevice::fail_all() {
  while (!clients_.empty()) drop_client(clients_.begin()->first);
}

}  // namespace xblk::hypervisor
