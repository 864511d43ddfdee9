#include "drivers/hypervisor/emu/protocol.hpp"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include <fmt/format.h>

namespace xblk::hypervisor::emu {

void Message::set_text(std::string_view line) {
  text.fill('\0');
  std::copy_n(line.begin(), std::min(line.size(), text.size() - 1), text.begin());
}

std::string Message::text_line() const {
  return {text.data(), ::strnlen(text.data(), text.size())};
}

Descriptor& Descriptor::operator=(Descriptor&& other) noexcept {
  std::swap(fd_, other.fd_);
  return *this;
}

Descriptor::~Descriptor() {
  if (fd_ >= 0) ::close(fd_);
}

int Descriptor::take() {
  return std::exchange(fd_, -1);
}

namespace {

// Room for the descriptors of one message, aligned as the kernel wants it.
union Control {
  cmsghdr alignment;
  std::array<char, CMSG_SPACE(kDescriptorsMax * sizeof(int))> bytes;
};

void take_descriptors(msghdr& header, Received& received) {
  for (cmsghdr* c = CMSG_FIRSTHDR(&header); c != nullptr; c = CMSG_NXTHDR(&header, c)) {
    if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < count; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof fd);
      Descriptor owned(fd);
      if (received.descriptor_count < kDescriptorsMax) {
        received.descriptors[received.descriptor_count++] = std::move(owned);
      }
    }
  }
}

}  // namespace

Status send_message(int socket, const Message& message, std::span<const int> descriptors) {
  iovec body{const_cast<Message*>(&message), sizeof message};
  msghdr header{};
  header.msg_iov = &body;
  header.msg_iovlen = 1;
  Control control{};
  if (!descriptors.empty()) {
    header.msg_control = control.bytes.data();
    header.msg_controllen = CMSG_SPACE(descriptors.size_bytes());
    cmsghdr* c = CMSG_FIRSTHDR(&header);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(descriptors.size_bytes());
    std::memcpy(CMSG_DATA(c), descriptors.data(), descriptors.size_bytes());
  }
  if (::sendmsg(socket, &header, MSG_DONTWAIT | MSG_NOSIGNAL) < 0) return fail_errno("send to the other end");
  return {};
}

Result<Received> receive_message(int socket) {
  Received received;
  iovec body{&received.message, sizeof received.message};
  Control control{};
  msghdr header{};
  header.msg_iov = &body;
  header.msg_iovlen = 1;
  header.msg_control = control.bytes.data();
  header.msg_controllen = control.bytes.size();
  const ssize_t got = ::recvmsg(socket, &header, MSG_CMSG_CLOEXEC);
  if (got < 0 && errno == ECONNRESET) return fail(ENODEV, "the other end is gone");
  if (got < 0) return fail_errno("receive from the other end");
  take_descriptors(header, received);
  if (got == 0) return fail(ENODEV, "the other end is gone");
  const Message& message = received.message;
  if (static_cast<std::size_t>(got) != sizeof message || (header.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0 ||
      message.magic != kMagic) {
    return fail(EPROTO, fmt::format("a message of {} bytes that is not xblk's guest protocol", got));
  }
  if (message.version != kVersion) {
    return fail(EPROTO, fmt::format("guest protocol version {}, this build speaks {}: use guest and host of the same "
                                    "build",
                                    message.version, kVersion));
  }
  return received;
}

Status check_socket_path(const std::string& path) {
  if (path.empty() || path.size() >= sizeof(sockaddr_un::sun_path)) {
    return fail(ENAMETOOLONG,
                fmt::format("socket path '{}': must have 1 to {} characters", path, sizeof(sockaddr_un::sun_path) - 1));
  }
  return {};
}

}  // namespace xblk::hypervisor::emu
