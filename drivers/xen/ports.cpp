#include "drivers/xen/ports.hpp"

#define __XEN_TOOLS__ 1  // else <xen/xen-compat.h> selects interface version 0
extern "C" {
#include <xenevtchn.h>
}

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/epoll.h>

#include <utility>

#include "drivers/base/check.hpp"
#include "drivers/base/unique_fd.hpp"
#include "drivers/xen/library.hpp"
#include "drivers/xen/locks.hpp"

namespace xblk::xen {

// One port and its handle.
//
// The kernel's driver has no mask operation: a port that fired stays silent until it is read and written back
// ("unmasked"). If mask() used that, a masked port could not be consumed twice. So a port is always written back at
// once, and masking is done where the waiting is: the waitable is an epoll instance with the descriptor inside, and
// mask() takes the interest away. A peer's storm costs one interrupt until somebody consumes it.
class Ports::Channel {
 public:
  static Result<std::unique_ptr<Channel>> open() {
    auto channel = std::make_unique<Channel>();
    channel->handle_.reset(xenevtchn_open(quiet_logger(), 0));
    if (channel->handle_ == nullptr) return open_failed(kEvtchn);
    channel->epoll_ = UniqueFd(::epoll_create1(EPOLL_CLOEXEC));
    if (!channel->epoll_) return fail_errno("epoll of an event channel");
    // Linux honours O_NONBLOCK here (xenevtchn.h warns of 3.12, which did not): two threads may consume the same port,
    // and the one that comes second must not sleep.
    const int fd = channel->fd();
    if (::fcntl(fd, F_SETFL, ::fcntl(fd, F_GETFL) | O_NONBLOCK) != 0) return fail_errno("non-blocking event channel");
    if (!channel->set_interest(EPOLL_CTL_ADD, EPOLLIN)) return fail_errno("epoll of an event channel");
    return channel;
  }

  [[nodiscard]] xenevtchn_handle* handle() const { return handle_.get(); }
  [[nodiscard]] int waitable() const { return epoll_.get(); }
  [[nodiscard]] EventPort port() const { return port_; }
  void set_port(EventPort port) { port_ = port; }

  void notify() { static_cast<void>(xenevtchn_notify(handle(), port_.value())); }
  // Written back before the caller looks at the ring: an event from then on is a new one, and is not lost.
  bool consume() {
    const xenevtchn_port_or_error_t fired = xenevtchn_pending(handle());
    if (fired < 0) return false;
    static_cast<void>(xenevtchn_unmask(handle(), static_cast<evtchn_port_t>(fired)));
    return true;
  }
  void mask() { XBLK_CHECK(set_interest(EPOLL_CTL_MOD, 0), "the descriptor is in the set until it is closed"); }
  void unmask() { XBLK_CHECK(set_interest(EPOLL_CTL_MOD, EPOLLIN), "the descriptor is in the set until it is closed"); }

 private:
  struct Close {
    void operator()(xenevtchn_handle* handle) const { xenevtchn_close(handle); }  // unbinds its port
  };

  [[nodiscard]] int fd() const { return xenevtchn_fd(handle()); }
  [[nodiscard]] bool set_interest(int operation, std::uint32_t events) {
    epoll_event event{};
    event.events = events;
    return ::epoll_ctl(epoll_.get(), operation, fd(), &event) == 0;
  }

  std::unique_ptr<xenevtchn_handle, Close> handle_;
  UniqueFd epoll_;
  EventPort port_{};
};

Ports::Ports(env::RealEnv& env) : lock_(env) {}
Ports::~Ports() = default;

Status Ports::available() {
  auto channel = Channel::open();
  if (!channel) return tl::unexpected(channel.error());
  return {};
}

Result<EventPort> Ports::allocate_unbound(DomId remote) {
  auto channel = Channel::open();
  if (!channel) return tl::unexpected(channel.error());
  const auto port = xenevtchn_bind_unbound_port((*channel)->handle(), remote.value());
  if (port < 0) return fail_errno(fmt::format("allocate an event channel for domain {}", remote.value()));
  (*channel)->set_port(EventPort(static_cast<std::uint32_t>(port)));
  return adopt(std::move(*channel));
}

Result<EventPort> Ports::bind_interdomain(DomId remote, EventPort remote_port) {
  auto channel = Channel::open();
  if (!channel) return tl::unexpected(channel.error());
  const auto port = xenevtchn_bind_interdomain((*channel)->handle(), remote.value(), remote_port.value());
  if (port < 0) return fail_errno(fmt::format("bind to port {} of domain {}", remote_port.value(), remote.value()));
  (*channel)->set_port(EventPort(static_cast<std::uint32_t>(port)));
  return adopt(std::move(*channel));
}

EventPort Ports::adopt(std::unique_ptr<Channel> channel) {
  const EventPort port = channel->port();
  const Exclusive guard(lock_);
  const bool added = channels_.emplace(port, std::move(channel)).second;
  XBLK_CHECK(added, "the hypervisor gives out a port once until it is closed");
  return port;
}

void Ports::close(EventPort port) {
  // Closed under the lock, so that the hypervisor cannot give the same port to an adopt() that finds it still here.
  const Exclusive guard(lock_);
  channels_.erase(port);
}

void Ports::notify(EventPort port) {
  if (Channel* channel = find(port)) channel->notify();
}

bool Ports::consume(EventPort port) {
  Channel* channel = find(port);
  return channel != nullptr && channel->consume();
}

void Ports::mask(EventPort port) {
  if (Channel* channel = find(port)) channel->mask();
}

void Ports::unmask(EventPort port) {
  if (Channel* channel = find(port)) channel->unmask();
}

int Ports::waitable(EventPort port) {
  Channel* channel = find(port);
  XBLK_CHECK(channel != nullptr, "only an open port is awaited");
  return channel->waitable();
}

std::size_t Ports::open_ports() {
  const Reading guard(lock_);
  return channels_.size();
}

// The channel outlives the lock: by the contract, a port is not used while it is being closed.
Ports::Channel* Ports::find(EventPort port) {
  const Reading guard(lock_);
  const auto found = channels_.find(port);
  return found == channels_.end() ? nullptr : found->second.get();
}

}  // namespace xblk::xen
