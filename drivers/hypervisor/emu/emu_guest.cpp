#include "drivers/hypervisor/emu/emu_guest.hpp"

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <utility>

#include <fmt/format.h>

#include "drivers/base/check.hpp"

namespace xblk::hypervisor::emu {
namespace {

Result<Descriptor> connect_to(const std::string& path) {
  if (auto valid = check_socket_path(path); !valid) return tl::unexpected(valid.error());
  Descriptor socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  if (socket.get() < 0) return fail_errno("open a socket to the emulated host");
  const timeval limit{.tv_sec = EmuGuest::kReplyTimeout.count(), .tv_usec = 0};
  if (::setsockopt(socket.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit) != 0 ||
      ::setsockopt(socket.get(), SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit) != 0) {
    return fail_errno("limit the time a request to the emulated host may take");
  }
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof address.sun_path - 1);
  if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    if (errno != ENOENT && errno != ECONNREFUSED) return fail_errno("connect to the emulated host at " + path);
    return fail(ENODEV, fmt::format("no emulated host answers at {}; start one with 'xblk emu up'", path));
  }
  return socket;
}

}  // namespace

Result<std::unique_ptr<EmuGuest>> EmuGuest::attach(const std::string& socket_path, DomId id, std::uint32_t pages) {
  auto socket = connect_to(socket_path);
  if (!socket) return tl::unexpected(socket.error());
  Message message;
  message.type = MessageType::attach;
  message.domain = id.value();
  message.pages = pages;
  auto reply = request(socket->get(), message);
  if (!reply) return forward(reply.error(), fmt::format("attach to {} as domain {}", socket_path, id.value()));
  if (reply->descriptor_count != 3) return fail(EPROTO, "the emulated host sent no memory with its reply");
  auto memory = env::RealMemory::adopt(reply->descriptors[0].take());
  if (!memory) return forward(memory.error(), "guest memory");
  auto grants = env::RealMemory::adopt(reply->descriptors[1].take());
  if (!grants) return forward(grants.error(), "grant-table frames");
  auto events = env::RealMemory::adopt(reply->descriptors[2].take());
  if (!events) return forward(events.error(), "event-channel page");
  if (events->pages() != 1 || reply->message.ports > kPortsMax) {
    return fail(EPROTO, "the emulated host handed over an event page that does not fit its ports");
  }
  Handover handover{std::move(*memory), std::move(*grants), std::move(*events), reply->message.ports};
  return std::unique_ptr<EmuGuest>(new EmuGuest(std::move(*socket), id, std::move(handover)));
}

EmuGuest::EmuGuest(Descriptor socket, DomId id, Handover handover)
    : socket_(std::move(socket)),
      memory_(std::move(handover.memory)),
      grant_frames_(std::move(handover.grant_frames)),
      event_page_(std::make_shared<env::RealMemory>(std::move(handover.event_page))),
      pages_(env_, id, memory_.base(), memory_.pages(), grant_frames_.base(), grant_frames_.pages()),
      ports_(handover.ports) {}

Result<Received> EmuGuest::request(int socket, const Message& message) {
  if (auto sent = send_message(socket, message); !sent) {
    const bool gone = sent.error().code == EPIPE || sent.error().code == ECONNRESET;
    return gone ? fail(ENODEV, "the emulated host is gone") : tl::unexpected(sent.error());
  }
  auto reply = receive_message(socket);
  if (!reply) {
    if (reply.error().code != EAGAIN) return reply;
    return fail(ETIMEDOUT, fmt::format("the emulated host did not answer within {} s", kReplyTimeout.count()));
  }
  if (reply->message.type != message.type) return fail(EPROTO, "the emulated host answered another request");
  if (reply->message.error != 0) return fail(reply->message.error, reply->message.text_line());
  return reply;
}

Result<Received> EmuGuest::request(const Message& message) {
  const std::lock_guard guard(request_mutex_);
  if (host_gone()) return fail(ENODEV, "the emulated host is gone");
  auto reply = request(socket_.get(), message);
  // A late reply would answer the next request: after a timeout the connection means nothing any more.
  if (!reply && (reply.error().code == ETIMEDOUT || reply.error().code == EPROTO)) gone_ = true;
  return reply;
}

Result<EventPort> EmuGuest::allocate_port(DomId remote) {
  Message message;
  message.type = MessageType::allocate_port;
  message.domain = remote.value();
  auto reply = request(message);
  if (!reply) return forward(reply.error(), "allocate an event-channel port");
  const EventPort number(reply->message.port);
  if (reply->descriptor_count != 2 || number.value() == 0 || number.value() >= ports_.size()) {
    return fail(EPROTO, fmt::format("the emulated host answered with port {} and {} descriptors", number.value(),
                                    reply->descriptor_count));
  }
  auto port = std::make_unique<Port>(Port{{EventBell<env::RealEnv>::adopt_receiver(reply->descriptors[0].take()),
                                           pending_bit(event_page_->base(), number),
                                           {event_page_, event_page_->base()}},
                                          EventBell<env::RealEnv>::adopt_sender(reply->descriptors[1].take())});
  ports_[number.value()] = std::move(port);
  return number;
}

void EmuGuest::close_port(EventPort number) {
  Message message;
  message.type = MessageType::close_port;
  message.port = number.value();
  // Our end first: the host gives the number out again, to another thread of ours, as soon as it has closed its end.
  port(number);
  ports_[number.value()].reset();
  // A host that is gone has closed every port.
  static_cast<void>(request(message));
}

EmuGuest::Port& EmuGuest::port(EventPort number) {
  XBLK_CHECK(number.value() < ports_.size() && ports_[number.value()] != nullptr, "only an open port is used");
  return *ports_[number.value()];
}

void EmuGuest::notify(EventPort number) {
  port(number).remote.ring();
}
bool EmuGuest::consume(EventPort number) {
  return port(number).local.consume();
}
void EmuGuest::mask(EventPort number) {
  port(number).local.bell.mask();
}
void EmuGuest::unmask(EventPort number) {
  port(number).local.bell.unmask();
}
int EmuGuest::waitable(EventPort number) {
  return port(number).local.bell.waitable();
}

bool EmuGuest::host_gone() const {
  if (gone_) return true;
  // Between requests the host sends nothing, so that readable means closed. Asked while another thread waits for its
  // reply, a readable reply must not count: hence the hang-up bit.
  pollfd state{socket_.get(), 0, 0};
  if (::poll(&state, 1, 0) > 0 && (state.revents & (POLLHUP | POLLERR)) != 0) gone_ = true;
  return gone_;
}

Status EmuGuest::ping() {
  Message message;
  message.type = MessageType::ping;
  auto reply = request(message);
  if (!reply) return tl::unexpected(reply.error());
  return {};
}

}  // namespace xblk::hypervisor::emu
