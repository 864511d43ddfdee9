#include "ci/perf/vhost_user_blk/connection.hpp"

#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>

#include <cstring>

#include <fmt/format.h>

namespace xblk::vhost_user {
namespace {

constexpr std::int64_t kNanosPerMicro = 1000;
constexpr std::int64_t kMicrosPerSecond = 1'000'000;

Status set_timeouts(int socket, Nanos timeout) {
  const std::int64_t micros = timeout.value() / kNanosPerMicro;
  const timeval limit{micros / kMicrosPerSecond, micros % kMicrosPerSecond};
  for (const int option : {SO_RCVTIMEO, SO_SNDTIMEO}) {
    if (::setsockopt(socket, SOL_SOCKET, option, &limit, sizeof limit) != 0) return fail_errno("set socket timeout");
  }
  return {};
}

}  // namespace

std::string to_string(Request request) {
  switch (request) {
    case Request::get_features:
      return "GET_FEATURES";
    case Request::set_features:
      return "SET_FEATURES";
    case Request::set_owner:
      return "SET_OWNER";
    case Request::set_memory_table:
      return "SET_MEM_TABLE";
    case Request::set_vring_size:
      return "SET_VRING_NUM";
    case Request::set_vring_address:
      return "SET_VRING_ADDR";
    case Request::set_vring_base:
      return "SET_VRING_BASE";
    case Request::get_vring_base:
      return "GET_VRING_BASE";
    case Request::set_vring_kick:
      return "SET_VRING_KICK";
    case Request::set_vring_call:
      return "SET_VRING_CALL";
    case Request::get_protocol_features:
      return "GET_PROTOCOL_FEATURES";
    case Request::set_protocol_features:
      return "SET_PROTOCOL_FEATURES";
    case Request::get_queue_count:
      return "GET_QUEUE_NUM";
    case Request::set_vring_enable:
      return "SET_VRING_ENABLE";
    case Request::get_config:
      return "GET_CONFIG";
  }
  return fmt::format("request {}", static_cast<std::uint32_t>(request));
}

Result<Connection> Connection::open(const std::string& path, Nanos timeout) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path) {
    return fail(ENAMETOOLONG,
                fmt::format("{}: longer than the {} bytes of a socket's path", path, sizeof address.sun_path - 1));
  }
  std::memcpy(address.sun_path, path.c_str(), path.size());
  UniqueFd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!socket) return fail_errno("create a unix socket");
  if (auto set = set_timeouts(socket.get(), timeout); !set) return tl::unexpected(set.error());
  if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    return fail_errno(path + ": connect to the vhost-user server");
  }
  return Connection(std::move(socket), path);
}

Result<std::uint64_t> Connection::get(Request request) {
  if (auto sent = send(request, 0, {}, -1); !sent) return tl::unexpected(sent.error());
  std::uint64_t value = 0;
  auto received = receive(request, std::as_writable_bytes(std::span(&value, 1)));
  if (!received) return tl::unexpected(received.error());
  return value;
}

Status Connection::set(Request request, std::span<const std::byte> message, int fd) {
  if (auto sent = send(request, acknowledged_ ? kNeedReply : 0, message, fd); !sent) return sent;
  if (!acknowledged_) return {};
  std::uint64_t verdict = 0;
  if (auto received = receive(request, std::as_writable_bytes(std::span(&verdict, 1))); !received) return received;
  if (verdict == 0) return {};
  return fail(EPROTO, about(request, fmt::format("the server refuses it with {}", verdict)));
}

Status Connection::exchange(Request request, std::span<std::byte> message) {
  if (auto sent = send(request, 0, message, -1); !sent) return sent;
  return receive(request, message);
}

Status Connection::send(Request request, std::uint32_t flags, std::span<const std::byte> message, int fd) {
  MessageHeader header{static_cast<std::uint32_t>(request), kVersion | flags,
                       static_cast<std::uint32_t>(message.size())};
  iovec parts[] = {{&header, sizeof header}, {const_cast<std::byte*>(message.data()), message.size()}};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof fd)] = {};
  msghdr envelope{};
  envelope.msg_iov = parts;
  envelope.msg_iovlen = message.empty() ? 1 : 2;
  if (fd >= 0) {
    envelope.msg_control = control;
    envelope.msg_controllen = sizeof control;
    cmsghdr* rights = CMSG_FIRSTHDR(&envelope);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(sizeof fd);
    std::memcpy(CMSG_DATA(rights), &fd, sizeof fd);
  }
  const ssize_t sent = ::sendmsg(socket_.get(), &envelope, MSG_NOSIGNAL);
  if (sent < 0) return fail_errno(about(request, "send"));
  if (static_cast<std::size_t>(sent) != sizeof header + message.size()) {
    return fail(EPROTO, about(request, "the server reads only half of it"));
  }
  return {};
}

Status Connection::receive(Request request, std::span<std::byte> answer) {
  MessageHeader header;
  if (auto got = receive_bytes(request, std::as_writable_bytes(std::span(&header, 1))); !got) return got;
  if (header.request != static_cast<std::uint32_t>(request) ||
      (header.flags & (kVersionMask | kReply)) != (kVersion | kReply)) {
    return fail(EPROTO,
                about(request, fmt::format("answered by message {} with flags {:#x}", header.request, header.flags)));
  }
  if (header.size != answer.size()) {
    return fail(EPROTO, about(request, fmt::format("answered with {} bytes, not {}", header.size, answer.size())));
  }
  return receive_bytes(request, answer);
}

Status Connection::receive_bytes(Request request, std::span<std::byte> bytes) {
  const ssize_t got = ::recv(socket_.get(), bytes.data(), bytes.size(), MSG_WAITALL);
  if (got < 0 && errno == EAGAIN) return fail(ETIMEDOUT, about(request, "no answer in time"));
  if (got < 0) return fail_errno(about(request, "receive"));
  if (static_cast<std::size_t>(got) != bytes.size()) {
    return fail(EPROTO, about(request, "the server closed the connection"));
  }
  return {};
}

std::string Connection::about(Request request, const std::string& what) const {
  return fmt::format("{}: {}: {}", name_, to_string(request), what);
}

}  // namespace xblk::vhost_user
