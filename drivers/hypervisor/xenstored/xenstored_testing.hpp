// Test helpers: a run directory, a running XenstoreService, bounded waits, a raw wire client, the stock tools.
#pragma once

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "drivers/hypervisor/xenstored/xenstore_service.hpp"
#include "drivers/keystore/client.hpp"

namespace xblk::hypervisor::testing {

inline constexpr int kPatienceMs = 10'000;  // a bound for what takes milliseconds, not a timing check

class TemporaryDirectory {
 public:
  TemporaryDirectory() {
    std::string name = (std::filesystem::temp_directory_path() / "xblk-XXXXXX").string();
    EXPECT_NE(::mkdtemp(name.data()), nullptr);
    path_ = name;
  }
  ~TemporaryDirectory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;

  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  std::string path_;
};

inline bool readable_in_time(int fd) {
  pollfd wait{fd, POLLIN, 0};
  return ::poll(&wait, 1, kPatienceMs) == 1;
}

inline XenstoreService::Options options_in(const std::string& directory) {
  return {directory, std::string(XBLK_BIN_DIR) + "/libxblk-xenstored-shim.so", ""};
}

// The next watch event; fails the test when none comes.
inline WatchEvent next_event(keystore::Client& client) {
  for (int waits = 0; waits < 50; ++waits) {
    if (auto event = client.poll_watch()) return *event;
    pollfd wait{client.fd(), POLLIN, 0};
    ::poll(&wait, 1, kPatienceMs / 50);
  }
  ADD_FAILURE() << "no watch event within " << kPatienceMs << " ms";
  return {};
}

inline keystore::Client connected(const std::string& path) {
  auto client = keystore::Client::connect(path);
  if (!client) {
    ADD_FAILURE() << client.error().message;
    std::abort();
  }
  return std::move(*client);
}

// Speaks the wire without libxenstore: for what a well-behaved client never does.
class RawClient {
 public:
  explicit RawClient(const std::string& path) : socket_(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    path.copy(address.sun_path, sizeof address.sun_path - 1);
    EXPECT_EQ(::connect(socket_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0) << path;
  }

  struct Message {
    std::uint32_t type = 0, request_id = 0, transaction_id = 0;
    std::string payload;
  };

  void send_bytes(const std::string& bytes) const {
    EXPECT_EQ(::send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL), static_cast<ssize_t>(bytes.size()));
  }
  void send(const Message& message) const {
    const std::uint32_t header[4] = {message.type, message.request_id, message.transaction_id,
                                     static_cast<std::uint32_t>(message.payload.size())};
    send_bytes(std::string(reinterpret_cast<const char*>(header), sizeof header) + message.payload);
  }
  // nullopt: the other end closed the connection, or nothing came in time.
  [[nodiscard]] std::optional<Message> receive() const {
    std::uint32_t header[4];
    if (!receive_all(header, sizeof header)) return std::nullopt;
    Message message{header[0], header[1], header[2], std::string(header[3], '\0')};
    if (!receive_all(message.payload.data(), header[3])) return std::nullopt;
    return message;
  }
  [[nodiscard]] std::optional<Message> ask(const Message& message) const {
    send(message);
    return receive();
  }
  // True when the other end closes the connection in time.
  [[nodiscard]] bool is_closed() const {
    char byte;
    return readable_in_time(socket_.get()) && ::recv(socket_.get(), &byte, 1, 0) <= 0;
  }
  void disconnect() { socket_.reset(); }

 private:
  [[nodiscard]] bool receive_all(void* to, std::size_t size) const {
    if (size == 0) return true;
    return readable_in_time(socket_.get()) &&
           ::recv(socket_.get(), to, size, MSG_WAITALL) == static_cast<ssize_t>(size);
  }
  UniqueFd socket_;
};

// A stock xenstore tool as a child process, aimed at one socket, killed after ten seconds.
class StockTool {
 public:
  StockTool(const std::string& socket, const std::string& command)
      : pipe_(::popen(("XENSTORED_PATH=" + socket + " timeout -s KILL 10 " + command + " 2>&1").c_str(), "r")) {}
  ~StockTool() { finish(); }
  StockTool(const StockTool&) = delete;
  StockTool& operator=(const StockTool&) = delete;

  std::string line() {
    char buffer[4096];
    return std::fgets(buffer, sizeof buffer, pipe_) == nullptr ? "" : buffer;
  }
  std::string rest() {
    std::string all;
    for (std::string next = line(); !next.empty(); next = line()) all += next;
    return all;
  }
  int finish() {  // exit status
    if (pipe_ != nullptr) status_ = WEXITSTATUS(::pclose(std::exchange(pipe_, nullptr)));
    return status_;
  }

 private:
  std::FILE* pipe_;
  int status_ = -1;
};

inline std::string tool_output(const std::string& socket, const std::string& command) {
  StockTool tool(socket, command);
  return tool.rest();
}

}  // namespace xblk::hypervisor::testing
