#include "drivers/hypervisor/xenstored/unix_socket.hpp"

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

namespace xblk::hypervisor {

Result<UniqueFd> listen_at(const std::string& path) {
  if (path.size() > kMaxSocketPath)
    return fail(ENAMETOOLONG, "socket path " + path + " has " + std::to_string(path.size()) +
                                  " bytes, a unix socket allows 107; choose a shorter directory");
  UniqueFd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket) return fail_errno("socket");
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, kMaxSocketPath);
  ::unlink(path.c_str());
  if (::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
    return fail_errno("bind " + path);
  // Nobody can connect between bind and chmod: the socket does not listen yet.
  if (::chmod(path.c_str(), 0600) != 0 || ::listen(socket.get(), 64) != 0) return fail_errno("listen at " + path);
  return socket;
}

Result<std::pair<UniqueFd, UniqueFd>> message_socket_pair() {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) return fail_errno("socketpair");
  return std::pair(UniqueFd(ends[0]), UniqueFd(ends[1]));
}

Status send_message(int socket, std::span<const std::byte> message, int fd) {
  iovec part{const_cast<std::byte*>(message.data()), message.size()};
  alignas(cmsghdr) char space[CMSG_SPACE(sizeof(int))] = {};
  msghdr header{};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  if (fd >= 0) {
    header.msg_control = space;
    header.msg_controllen = sizeof space;
    cmsghdr* rights = CMSG_FIRSTHDR(&header);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(rights), &fd, sizeof fd);
  }
  if (::sendmsg(socket, &header, MSG_DONTWAIT | MSG_NOSIGNAL) < 0) return fail_errno("sendmsg");
  return {};
}

}  // namespace xblk::hypervisor
