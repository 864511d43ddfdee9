#include "drivers/hypervisor/xenstored/shim_server.hpp"

#include <sys/epoll.h>
#include <sys/socket.h>

#include "drivers/hypervisor/xenstored/unix_socket.hpp"

namespace xblk::hypervisor {
namespace {

DomId as_domain(std::uint32_t number) {
  return DomId(static_cast<std::uint16_t>(number));
}

}  // namespace

Result<std::unique_ptr<ShimServer>> ShimServer::create(PollLoop& loop, UniqueFd control, Host host) {
  auto pair = message_socket_pair();
  if (!pair) return tl::unexpected(pair.error());
  std::unique_ptr<ShimServer> server(
      new ShimServer(loop, std::move(control), std::move(pair->first), std::move(pair->second), std::move(host)));
  ShimServer* self = server.get();
  Status added = loop.add(self->control_.get(), EPOLLIN, [self](std::uint32_t) { self->on_control(); });
  if (added) added = loop.add(self->events_.get(), EPOLLIN, [self](std::uint32_t ready) { self->on_events(ready); });
  if (!added) return tl::unexpected(added.error());
  return server;
}

ShimServer::ShimServer(PollLoop& loop, UniqueFd control, UniqueFd events, UniqueFd events_of_shim, Host host)
    : loop_(loop),
      control_(std::move(control)),
      events_(std::move(events)),
      events_of_shim_(std::move(events_of_shim)),
      host_(std::move(host)) {}

ShimServer::~ShimServer() {
  loop_.remove(control_.get());
  loop_.remove(events_.get());
}

void ShimServer::on_control() {
  ShimRequest request{};
  const ssize_t got = ::recv(control_.get(), &request, sizeof request, MSG_DONTWAIT);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (got != sizeof request) return host_.on_lost();
  int fd = -1;
  const ShimReply reply = answer(request, fd);
  const bool sent = send_message(control_.get(), std::as_bytes(std::span(&reply, 1)), fd).has_value();
  if (request.operation == ShimOperation::kOpenEvents) events_of_shim_.reset();
  if (!sent) host_.on_lost();
}

// `fd` is set to a descriptor to send along; it stays with its owner here.
ShimReply ShimServer::answer(const ShimRequest& request, int& fd) {
  switch (request.operation) {
    case ShimOperation::kOpenEvents:
      fd = events_of_shim_.get();
      return {fd >= 0 ? 0 : EBUSY, 0};
    case ShimOperation::kMapRing:
      fd = host_.ring_fd(as_domain(request.domain));
      return {fd >= 0 ? 0 : ENOENT, 0};
    case ShimOperation::kDomainInfo:
      return {0, static_cast<std::uint32_t>(host_.state(as_domain(request.domain)))};
    case ShimOperation::kBind:
      return bind(as_domain(request.domain));
    case ShimOperation::kBindVirq:
      exception_port_ = next_port_++;
      return {0, exception_port_};
    case ShimOperation::kUnbind:
      if (const auto bound = domain_of_port_.find(request.port); bound != domain_of_port_.end()) {
        port_of_domain_.erase(bound->second);
        domain_of_port_.erase(bound);
      }
      return {0, 0};
  }
  return {ENOSYS, 0};
}

ShimReply ShimServer::bind(DomId domain) {
  if (host_.state(domain) == DomainState::kAbsent) return {ESRCH, 0};
  const std::uint32_t port = next_port_++;
  domain_of_port_[port] = domain;
  port_of_domain_[domain] = port;
  return {0, port};
}

void ShimServer::on_events(std::uint32_t ready) {
  if ((ready & EPOLLOUT) != 0) send_owed();
  ShimEvent event{};
  while (true) {
    const ssize_t got = ::recv(events_.get(), &event, sizeof event, MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (got != sizeof event) return host_.on_lost();
    const auto bound = domain_of_port_.find(event.port);
    if (bound != domain_of_port_.end()) host_.on_notify(bound->second);
  }
}

void ShimServer::send_event(DomId from) {
  const auto bound = port_of_domain_.find(from);
  if (bound != port_of_domain_.end()) raise(bound->second);
}

void ShimServer::send_domain_exception() {
  if (exception_port_ != 0) raise(exception_port_);
}

void ShimServer::raise(std::uint32_t port) {
  owed_.insert(port);
  send_owed();
}

void ShimServer::send_owed() {
  while (!owed_.empty()) {
    const ShimEvent event{*owed_.begin()};
    // A full socket is tried again when it drains; a broken one shows as the daemon's end.
    if (!send_message(events_.get(), std::as_bytes(std::span(&event, 1)), -1)) break;
    owed_.erase(owed_.begin());
  }
  loop_.modify(events_.get(), owed_.empty() ? EPOLLIN : EPOLLIN | EPOLLOUT);
}

}  // namespace xblk::hypervisor
