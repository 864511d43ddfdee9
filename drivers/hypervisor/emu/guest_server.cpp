#include "drivers/hypervisor/emu/guest_server.hpp"

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <utility>

#include <fmt/format.h>

namespace xblk::hypervisor::emu {
namespace {

constexpr int kEventsPerTurn = 16;

sockaddr_un address_of(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof address.sun_path - 1);
  return address;
}

const sockaddr* generic(const sockaddr_un& address) {
  return reinterpret_cast<const sockaddr*>(&address);
}

bool somebody_listens(const sockaddr_un& address) {
  const Descriptor probe(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  // EAGAIN: its backlog is full, so it is alive.
  return ::connect(probe.get(), generic(address), sizeof address) == 0 || errno == EAGAIN;
}

Status watch(int epoll, int fd) {
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.fd = fd;
  if (::epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) != 0) return fail_errno("watch a guest's socket");
  return {};
}

}  // namespace

Result<std::unique_ptr<GuestServer>> GuestServer::listen(Hypervisor<env::RealEnv>& hypervisor, GuestServerConfig config,
                                                         GuestServerEvents events) {
  std::unique_ptr<GuestServer> server(new GuestServer(hypervisor, std::move(config), std::move(events)));
  if (auto opened = server->open(); !opened) return tl::unexpected(opened.error());
  return server;
}

GuestServer::GuestServer(Hypervisor<env::RealEnv>& hypervisor, GuestServerConfig config, GuestServerEvents events)
    : hypervisor_(hypervisor), config_(std::move(config)), events_(std::move(events)) {}

GuestServer::~GuestServer() {
  for (auto& [fd, connection] : connections_) {
    if (connection.domain) hypervisor_.destroy_domain(connection.domain->id);
  }
  if (bound_) ::unlink(config_.socket_path.c_str());
}

Status GuestServer::open() {
  if (auto valid = check_socket_path(config_.socket_path); !valid) return valid;
  const sockaddr_un address = address_of(config_.socket_path);
  epoll_ = Descriptor(::epoll_create1(EPOLL_CLOEXEC));
  listener_ = Descriptor(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  spare_ = Descriptor(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  if (epoll_.get() < 0 || listener_.get() < 0 || spare_.get() < 0) return fail_errno("open the socket for guests");
  if (::bind(listener_.get(), generic(address), sizeof address) != 0) {
    if (errno != EADDRINUSE) return fail_errno("bind " + config_.socket_path);
    if (somebody_listens(address)) {
      return fail(EADDRINUSE, config_.socket_path +
                                  ": another emulated host is running there; stop it or choose "
                                  "another directory");
    }
    ::unlink(config_.socket_path.c_str());
    if (::bind(listener_.get(), generic(address), sizeof address) != 0) {
      return fail_errno("bind " + config_.socket_path);
    }
  }
  bound_ = true;
  // Before listen(): nobody can connect with the permissions that umask left.
  if (::chmod(config_.socket_path.c_str(), S_IRUSR | S_IWUSR) != 0) return fail_errno("chmod " + config_.socket_path);
  if (::listen(listener_.get(), SOMAXCONN) != 0) return fail_errno("listen on " + config_.socket_path);
  return watch(epoll_.get(), listener_.get());
}

void GuestServer::handle() {
  std::array<epoll_event, kEventsPerTurn> ready;
  const int n = ::epoll_wait(epoll_.get(), ready.data(), kEventsPerTurn, 0);
  for (int i = 0; i < n; ++i) {
    const int fd = ready[static_cast<std::size_t>(i)].data.fd;
    if (fd == listener_.get()) {
      accept_one();
    } else if (const auto found = connections_.find(fd); found != connections_.end()) {
      serve(found->second);
    }
  }
}

void GuestServer::accept_one() {
  int fd = ::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
  if (fd < 0 && (errno == EMFILE || errno == ENFILE)) {
    report("a guest was turned away: no file descriptors left; raise the limit of open files (ulimit -n)");
    spare_ = Descriptor();
    const Descriptor turned_away(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
  }
  if (spare_.get() < 0) spare_ = Descriptor(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  if (fd < 0) return;
  Descriptor socket(fd);
  ucred peer{};
  socklen_t length = sizeof peer;
  if (::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0) return;
  if (peer.uid != ::geteuid() && peer.uid != 0) {
    return report(fmt::format("process {} of uid {} was turned away: guests run as uid {} or root", peer.pid, peer.uid,
                              ::geteuid()));
  }
  if (connections_.size() >= config_.connections_max) {
    return report(
        fmt::format("process {} was turned away: {} guests are connected already", peer.pid, connections_.size()));
  }
  if (!watch(epoll_.get(), fd)) return;
  connections_.emplace(fd, Connection{std::move(socket), peer.pid, nullptr});
}

void GuestServer::serve(Connection& connection) {
  const auto received = receive_message(connection.socket.get());
  if (!received && (received.error().code == EAGAIN || received.error().code == EINTR)) return;
  const Status served = received ? dispatch(connection, received->message) : tl::unexpected(received.error());
  if (served) return;
  if (served.error().code != ENODEV) {
    report(fmt::format("process {} (domain {}) was disconnected: {}", connection.pid,
                       connection.domain ? connection.domain->id.value() : 0, served.error().message));
  }
  drop(connection.socket.get());
}

Status GuestServer::dispatch(Connection& connection, const Message& request) {
  if (request.type != MessageType::attach && !connection.domain) {
    return fail(EPROTO, "a request before the guest attached");
  }
  Message reply;
  reply.type = request.type;
  switch (request.type) {
    case MessageType::attach:
      return attach(connection, request);
    case MessageType::allocate_port:
      return allocate_port(connection, request);
    case MessageType::close_port:
      hypervisor_.channels().close(*connection.domain->ports, EventPort(request.port));
      return send_message(connection.socket.get(), reply);
    case MessageType::ping:
      return send_message(connection.socket.get(), reply);
  }
  return fail(EPROTO, fmt::format("unknown request {}", static_cast<int>(request.type)));
}

Status GuestServer::attach(Connection& connection, const Message& request) {
  if (connection.domain) return fail(EPROTO, "a second attach on one connection");
  if (request.pages > config_.pages_max) {
    return refuse(connection, request,
                  {ENOMEM, fmt::format("domain {}: asked for {} pages of memory, a guest may have "
                                       "{}",
                                       request.domain, request.pages, config_.pages_max)});
  }
  // Out of DomId's range is out of range for the hypervisor too.
  const DomId id(static_cast<std::uint16_t>(std::min<std::uint32_t>(request.domain, 0xffff)));
  auto domain = hypervisor_.create_domain(id, request.pages, config_.limits);
  if (!domain) return refuse(connection, request, domain.error());
  connection.domain = *domain;
  if (events_.on_guest_attached) events_.on_guest_attached({id, connection.pid, request.pages});
  Message reply;
  reply.type = MessageType::attach;
  reply.domain = id.value();
  reply.pages = request.pages;
  reply.grant_frames = config_.limits.grant_frames;
  reply.ports = config_.limits.ports;
  const std::array fds{(*domain)->memory.fd(), (*domain)->grant_memory.fd(), (*domain)->event_memory->fd()};
  return send_message(connection.socket.get(), reply, fds);
}

Status GuestServer::allocate_port(Connection& connection, const Message& request) {
  auto local = EventBell<env::RealEnv>::create_for_remote_receiver();
  if (!local) return refuse(connection, request, local.error());
  auto distant = EventBell<env::RealEnv>::create();
  if (!distant) return refuse(connection, request, distant.error());
  // They stay open as long as the port, and only this thread closes a guest's ports.
  const std::array fds{local->receiver_fd(), distant->sender_fd()};
  const DomId remote(static_cast<std::uint16_t>(std::min<std::uint32_t>(request.domain, 0xffff)));
  const auto port = hypervisor_.channels().allocate_unbound(*connection.domain->ports, remote, std::move(*local),
                                                            std::move(*distant));
  if (!port) return refuse(connection, request, port.error());
  Message reply;
  reply.type = MessageType::allocate_port;
  reply.port = port->value();
  return send_message(connection.socket.get(), reply, fds);
}

Status GuestServer::refuse(Connection& connection, const Message& request, const Error& error) {
  Message reply;
  reply.type = request.type;
  reply.error = error.code;
  reply.set_text(error.message);
  return send_message(connection.socket.get(), reply);
}

void GuestServer::drop(int fd) {
  const auto node = connections_.extract(fd);
  const DomainPtr& domain = node.mapped().domain;
  if (!domain) return;
  hypervisor_.destroy_domain(domain->id);
  if (events_.on_guest_gone) events_.on_guest_gone(domain->id);
}

std::vector<AttachedGuest> GuestServer::guests() const {
  std::vector<AttachedGuest> list;
  for (const auto& [fd, connection] : connections_) {
    if (connection.domain) list.push_back({connection.domain->id, connection.pid, connection.domain->memory.pages()});
  }
  return list;
}

void GuestServer::report(const std::string& line) const {
  if (events_.on_refused) events_.on_refused(line);
}

}  // namespace xblk::hypervisor::emu
