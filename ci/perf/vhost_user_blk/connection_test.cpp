// Against a scripted server: every way in which an answer can be wrong is an error that names the message.
#include "ci/perf/vhost_user_blk/connection.hpp"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <cstring>
#include <functional>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace xblk::vhost_user {
namespace {

using testing::HasSubstr;

class ConnectionTest : public testing::Test {
 protected:
  ConnectionTest() {
    int ends[2];
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    connection_.emplace(UniqueFd(ends[0]), "server");
    server_ = UniqueFd(ends[1]);
  }
  ~ConnectionTest() override {
    if (thread_.joinable()) thread_.join();
  }

  // The server reads one message, then does this.
  void on_message(std::function<void(const MessageHeader&)> answer) {
    thread_ = std::thread([this, answer = std::move(answer)] {
      MessageHeader header;
      alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))];
      iovec part{&header, sizeof header};
      msghdr envelope{};
      envelope.msg_iov = &part;
      envelope.msg_iovlen = 1;
      envelope.msg_control = control;
      envelope.msg_controllen = sizeof control;
      ASSERT_EQ(::recvmsg(server_.get(), &envelope, MSG_WAITALL), static_cast<ssize_t>(sizeof header));
      if (const cmsghdr* rights = CMSG_FIRSTHDR(&envelope)) {
        int fd = -1;
        std::memcpy(&fd, CMSG_DATA(rights), sizeof fd);
        received_fd_ = UniqueFd(fd);
      }
      received_.resize(header.size);
      if (header.size > 0) {
        ASSERT_EQ(::recv(server_.get(), received_.data(), header.size, MSG_WAITALL), header.size);
      }
      answer(header);
    });
  }
  void reply(std::uint32_t request, std::uint32_t flags, std::uint64_t value, std::uint32_t size = 8) {
    const MessageHeader header{request, flags, size};
    std::byte message[sizeof header + sizeof value];
    std::memcpy(message, &header, sizeof header);
    std::memcpy(message + sizeof header, &value, sizeof value);
    EXPECT_GT(::send(server_.get(), message, sizeof message, MSG_NOSIGNAL), 0);
  }

  std::optional<Connection> connection_;
  UniqueFd server_;
  UniqueFd received_fd_;
  std::vector<std::byte> received_;
  std::thread thread_;
};

TEST_F(ConnectionTest, AsksAndIsAnswered) {
  on_message([this](const MessageHeader& header) {
    EXPECT_EQ(header.request, 1u);
    EXPECT_EQ(header.flags, kVersion);
    EXPECT_EQ(header.size, 0u);
    reply(1, kVersion | kReply, 0x1234'5678'9abcULL);
  });
  EXPECT_EQ(connection_->get(Request::get_features).value(), 0x1234'5678'9abcULL);
}

TEST_F(ConnectionTest, PassesADescriptorAlong) {
  const UniqueFd null(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  on_message([](const MessageHeader& header) { EXPECT_EQ(header.size, sizeof(std::uint64_t)); });
  const std::uint64_t queue = 3;
  ASSERT_TRUE(connection_->set(Request::set_vring_kick, payload(queue), null.get()));
  thread_.join();
  ASSERT_TRUE(received_fd_);
  struct stat sent {};
  struct stat received {};
  ASSERT_EQ(::fstat(null.get(), &sent), 0);
  ASSERT_EQ(::fstat(received_fd_.get(), &received), 0);
  EXPECT_EQ(sent.st_rdev, received.st_rdev);
}

TEST_F(ConnectionTest, WaitsForTheVerdictOnceAcknowledgementsAreAgreed) {
  connection_->use_acknowledgements();
  on_message([this](const MessageHeader& header) {
    EXPECT_EQ(header.flags, kVersion | kNeedReply);
    reply(header.request, kVersion | kReply, 0);
  });
  const VringState size{0, 256};
  EXPECT_TRUE(connection_->set(Request::set_vring_size, payload(size)));
}

TEST_F(ConnectionTest, SaysWhatTheServerRefuses) {
  connection_->use_acknowledgements();
  on_message([this](const MessageHeader& header) { reply(header.request, kVersion | kReply, 22); });
  const auto refused = connection_->set(Request::set_memory_table);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, EPROTO);
  EXPECT_EQ(refused.error().message, "server: SET_MEM_TABLE: the server refuses it with 22");
}

TEST_F(ConnectionTest, RefusesAnAnswerToAnotherMessage) {
  on_message([this](const MessageHeader&) { reply(2, kVersion | kReply, 0); });
  EXPECT_THAT(connection_->get(Request::get_features).error().message,
              HasSubstr("GET_FEATURES: answered by message 2"));
}

TEST_F(ConnectionTest, RefusesAnAnswerThatIsNoReply) {
  on_message([this](const MessageHeader&) { reply(1, kVersion, 0); });
  EXPECT_THAT(connection_->get(Request::get_features).error().message, HasSubstr("with flags 0x1"));
}

TEST_F(ConnectionTest, RefusesAnotherVersion) {
  on_message([this](const MessageHeader&) { reply(1, 2 | kReply, 0); });
  EXPECT_THAT(connection_->get(Request::get_features).error().message, HasSubstr("with flags 0x6"));
}

TEST_F(ConnectionTest, RefusesAnAnswerOfAnotherLength) {
  on_message([this](const MessageHeader&) { reply(1, kVersion | kReply, 0, 4096); });
  EXPECT_THAT(connection_->get(Request::get_features).error().message, HasSubstr("answered with 4096 bytes, not 8"));
}

TEST_F(ConnectionTest, SaysThatTheServerIsGone) {
  on_message([this](const MessageHeader&) { server_.reset(); });
  EXPECT_THAT(connection_->get(Request::get_features).error().message, HasSubstr("closed the connection"));
}

TEST_F(ConnectionTest, NamesTheSocketThatIsNotThere) {
  const auto refused = Connection::open("/nonexistent/socket", seconds(1));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ENOENT);
  EXPECT_THAT(refused.error().message, HasSubstr("/nonexistent/socket: connect to the vhost-user server"));
  EXPECT_EQ(Connection::open(std::string(200, 'x'), seconds(1)).error().code, ENAMETOOLONG);
}

}  // namespace
}  // namespace xblk::vhost_user
