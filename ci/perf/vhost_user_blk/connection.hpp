// The control channel to a vhost-user server: messages over a unix socket, with descriptors beside them ("Vhost-user
// Protocol" of QEMU's documentation, sections "Message types" and "Front-end message types").
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "drivers/base/result.hpp"
#include "drivers/base/unique_fd.hpp"
#include "drivers/base/units.hpp"

namespace xblk::vhost_user {

enum class Request : std::uint32_t {
  get_features = 1,
  set_features = 2,
  set_owner = 3,
  set_memory_table = 5,
  set_vring_size = 8,
  set_vring_address = 9,
  set_vring_base = 10,
  get_vring_base = 11,
  set_vring_kick = 12,
  set_vring_call = 13,
  get_protocol_features = 15,
  set_protocol_features = 16,
  get_queue_count = 17,
  set_vring_enable = 18,
  get_config = 24,
};
std::string to_string(Request request);

// Bits of SET_FEATURES and of SET_PROTOCOL_FEATURES.
inline constexpr std::uint64_t kProtocolFeatures = UINT64_C(1) << 30;  // VHOST_USER_F_PROTOCOL_FEATURES
inline constexpr std::uint64_t kMultiQueue = UINT64_C(1) << 0;
inline constexpr std::uint64_t kReplyAck = UINT64_C(1) << 3;
inline constexpr std::uint64_t kConfig = UINT64_C(1) << 9;

struct MessageHeader {
  std::uint32_t request = 0;
  std::uint32_t flags = 0;
  std::uint32_t size = 0;  // of the payload that follows
};
static_assert(sizeof(MessageHeader) == 12);
inline constexpr std::uint32_t kVersion = 1;  // the flags' lowest two bits
inline constexpr std::uint32_t kVersionMask = 3;
inline constexpr std::uint32_t kReply = 1u << 2;
inline constexpr std::uint32_t kNeedReply = 1u << 3;

struct VringState {
  std::uint32_t index = 0;
  std::uint32_t value = 0;
};
struct VringAddress {
  std::uint32_t index = 0;
  std::uint32_t flags = 0;
  std::uint64_t descriptors = 0;  // user addresses, as those of the memory table
  std::uint64_t used = 0;
  std::uint64_t available = 0;
  std::uint64_t log = 0;
};
struct MemoryTable {  // of one region
  std::uint32_t regions = 1;
  std::uint32_t padding = 0;
  std::uint64_t guest_address = 0;
  std::uint64_t size = 0;
  std::uint64_t user_address = 0;
  std::uint64_t offset = 0;
};

template <class T>
std::span<const std::byte> payload(const T& value) {
  return std::as_bytes(std::span(&value, 1));
}

// Every call is a whole exchange; EPROTO names the message that was answered wrongly, ETIMEDOUT the one that was not.
class Connection {
 public:
  static Result<Connection> open(const std::string& path, Nanos timeout);
  // A connected stream socket. `name` is what errors call the other end.
  Connection(UniqueFd socket, std::string name) : socket_(std::move(socket)), name_(std::move(name)) {}

  Result<std::uint64_t> get(Request request);
  // Waits for the server's verdict if acknowledgements are negotiated. `fd`: passed along, not taken.
  Status set(Request request, std::span<const std::byte> message = {}, int fd = -1);
  // Sends `message` and overwrites it with the answer, which must have the same length.
  Status exchange(Request request, std::span<std::byte> message);

  void use_acknowledgements() { acknowledged_ = true; }
  [[nodiscard]] int socket() const { return socket_.get(); }
  [[nodiscard]] const std::string& name() const { return name_; }

 private:
  Status send(Request request, std::uint32_t flags, std::span<const std::byte> message, int fd);
  Status receive(Request request, std::span<std::byte> answer);
  Status receive_bytes(Request request, std::span<std::byte> bytes);
  [[nodiscard]] std::string about(Request request, const std::string& what) const;

  UniqueFd socket_;
  std::string name_;
  bool acknowledged_ = false;
};

}  // namespace xblk::vhost_user
