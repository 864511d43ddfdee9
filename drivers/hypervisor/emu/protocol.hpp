// What a guest process and the host say to each other: one fixed-size message per datagram of a SOCK_SEQPACKET unix
// socket, each request answered by one reply, descriptors as SCM_RIGHTS. Grants and events never pass here.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "drivers/base/result.hpp"

namespace xblk::hypervisor::emu {

inline constexpr std::uint32_t kMagic = 0x47425858;  // "XXBG" in file order
inline constexpr std::uint16_t kVersion = 1;

enum class MessageType : std::uint16_t {
  attach = 1,         // domain, pages -> pages, grant_frames, ports; descriptors: memory, grant frames, event page
  allocate_port = 2,  // domain = who may bind -> port; descriptors: where our events arrive, where to send to the peer
  close_port = 3,     // port
  ping = 4,
};

struct Message {
  std::uint32_t magic = kMagic;
  std::uint16_t version = kVersion;
  MessageType type{};
  std::int32_t error = 0;  // replies: errno, with one line in `text`
  std::uint32_t domain = 0;
  std::uint32_t pages = 0;
  std::uint32_t grant_frames = 0;
  std::uint32_t ports = 0;
  std::uint32_t port = 0;
  std::array<char, 224> text{};

  void set_text(std::string_view line);
  [[nodiscard]] std::string text_line() const;
};
static_assert(sizeof(Message) == 256);

inline constexpr std::size_t kDescriptorsMax = 3;

// A received descriptor that closes unless taken.
class Descriptor {
 public:
  explicit Descriptor(int fd = -1) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(other.take()) {}
  Descriptor& operator=(Descriptor&& other) noexcept;
  ~Descriptor();
  [[nodiscard]] int get() const { return fd_; }
  [[nodiscard]] int take();

 private:
  int fd_;
};

struct Received {
  Message message;
  std::array<Descriptor, kDescriptorsMax> descriptors;
  std::size_t descriptor_count = 0;
};

// Never sleeps and never raises SIGPIPE: a peer that does not read is EAGAIN, one that is gone EPIPE.
Status send_message(int socket, const Message& message, std::span<const int> descriptors = {});

// EAGAIN: nothing there (or the socket's receive timeout passed). ENODEV: the peer is gone. EPROTO: not our protocol.
Result<Received> receive_message(int socket);

// The address of `path`, or one line why it cannot be a unix socket's.
Status check_socket_path(const std::string& path);

}  // namespace xblk::hypervisor::emu
