// Unix sockets as the service needs them: listen at a path, pass a descriptor along.
#pragma once

#include <span>
#include <string>
#include <utility>

#include "drivers/base/result.hpp"
#include "drivers/base/unique_fd.hpp"

namespace xblk::hypervisor {

inline constexpr std::size_t kMaxSocketPath = 107;  // sizeof(sockaddr_un::sun_path) less the final zero

// Mode 0600: whoever may open it is the domain. A stale socket file of an earlier run is replaced.
Result<UniqueFd> listen_at(const std::string& path);

// Message boundaries are kept (SOCK_SEQPACKET); `second` is meant to be given away.
Result<std::pair<UniqueFd, UniqueFd>> message_socket_pair();

// Sends one message, with a descriptor when `fd` >= 0. Never blocks.
Status send_message(int socket, std::span<const std::byte> message, int fd);

}  // namespace xblk::hypervisor
