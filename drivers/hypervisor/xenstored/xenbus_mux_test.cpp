// The multiplexer against a scripted daemon: what goes on the wire, and what comes back to whom.
#include "drivers/hypervisor/xenstored/xenbus_mux.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

extern "C" {
#include <xen/io/xs_wire.h>
}

#include <cstring>

#include "drivers/base/prng.hpp"

namespace xblk::hypervisor {
namespace {

using ::testing::IsEmpty;
using ::testing::SizeIs;

struct Message {
  std::uint32_t type = 0, request_id = 0, transaction_id = 0;
  std::string payload;
  friend bool operator==(const Message&, const Message&) = default;
};

std::string text(std::string_view string) {
  return std::string(string) + '\0';
}

std::string encode(const Message& message) {
  const std::uint32_t header[4] = {message.type, message.request_id, message.transaction_id,
                                   static_cast<std::uint32_t>(message.payload.size())};
  return std::string(reinterpret_cast<const char*>(header), sizeof header) + message.payload;
}

// Takes every message out of a queue of the mux.
std::vector<Message> take(std::string& queue) {
  std::vector<Message> messages;
  std::size_t at = 0;
  while (at < queue.size()) {
    std::uint32_t header[4];
    std::memcpy(header, queue.data() + at, sizeof header);
    messages.push_back({header[0], header[1], header[2], queue.substr(at + sizeof header, header[3])});
    at += sizeof header + header[3];
  }
  queue.clear();
  return messages;
}

class XenbusMuxTest : public ::testing::Test {
 protected:
  // Sends as the client and returns what reached the daemon.
  std::vector<Message> send(XenbusMux::ClientId client, const Message& message) {
    EXPECT_TRUE(mux_.from_client(client, encode(message)));
    return take(mux_.to_daemon());
  }
  // The daemon answers `request` with `type` and `payload`.
  void answer(const Message& request, std::uint32_t type, const std::string& payload) {
    EXPECT_TRUE(mux_.from_daemon(encode({type, request.request_id, request.transaction_id, payload})));
  }
  std::uint32_t begin_transaction(XenbusMux::ClientId client, std::uint32_t id) {
    const auto sent = send(client, {XS_TRANSACTION_START, 1, 0, text("")});
    answer(sent.at(0), XS_TRANSACTION_START, text(std::to_string(id)));
    take(mux_.to_client(client));
    return id;
  }
  void add_watch(XenbusMux::ClientId client, const std::string& path, const std::string& token) {
    const auto sent = send(client, {XS_WATCH, 1, 0, text(path) + text(token)});
    answer(sent.at(0), XS_WATCH, text("OK"));
    take(mux_.to_client(client));
  }

  XenbusMux mux_;
  XenbusMux::ClientId first_ = mux_.add_client();
  XenbusMux::ClientId second_ = mux_.add_client();
};

TEST_F(XenbusMuxTest, EqualRequestIdsOfTwoClientsAreToldApart) {
  const auto one = send(first_, {XS_READ, 5, 0, text("a")});
  const auto two = send(second_, {XS_READ, 5, 0, text("b")});
  ASSERT_THAT(one, SizeIs(1));
  ASSERT_THAT(two, SizeIs(1));
  EXPECT_NE(one[0].request_id, two[0].request_id);
  answer(two[0], XS_READ, "for second");
  answer(one[0], XS_READ, "for first");
  EXPECT_EQ(take(mux_.to_client(first_)), (std::vector<Message>{{XS_READ, 5, 0, "for first"}}));
  EXPECT_EQ(take(mux_.to_client(second_)), (std::vector<Message>{{XS_READ, 5, 0, "for second"}}));
  EXPECT_EQ(mux_.outstanding(), 0U);
}

TEST_F(XenbusMuxTest, BytesMayArriveInAnyPieces) {
  const std::string bytes = encode({XS_WRITE, 1, 0, text("a") + "value"});
  for (const char byte : bytes) ASSERT_TRUE(mux_.from_client(first_, std::string_view(&byte, 1)));
  const auto sent = take(mux_.to_daemon());
  ASSERT_THAT(sent, SizeIs(1));
  EXPECT_EQ(sent[0].payload, text("a") + "value");
  const std::string reply = encode({XS_WRITE, sent[0].request_id, 0, text("OK")});
  for (const char byte : reply) ASSERT_TRUE(mux_.from_daemon(std::string_view(&byte, 1)));
  EXPECT_THAT(take(mux_.to_client(first_)), SizeIs(1));
}

TEST_F(XenbusMuxTest, WatchEventsReachTheirClientWithItsOwnToken) {
  const auto watch = send(second_, {XS_WATCH, 1, 0, text("device") + text("7:x")});
  ASSERT_THAT(watch, SizeIs(1));
  const std::string token = watch[0].payload.substr(sizeof "device");
  EXPECT_TRUE(mux_.from_daemon(encode({XS_WATCH_EVENT, 0, 0, text("device/a") + token})));
  EXPECT_EQ(take(mux_.to_client(second_)),
            (std::vector<Message>{{XS_WATCH_EVENT, 0, 0, text("device/a") + text("7:x")}}));
  EXPECT_THAT(mux_.to_client(first_), IsEmpty());
}

TEST_F(XenbusMuxTest, ALeavingClientTakesItsTransactionsAndWatchesAlong) {
  begin_transaction(first_, 41);
  begin_transaction(second_, 42);
  add_watch(first_, "device", "t");
  mux_.remove_client(first_);
  const auto left_behind = take(mux_.to_daemon());
  ASSERT_THAT(left_behind, SizeIs(2));
  EXPECT_EQ(left_behind[0].type, static_cast<std::uint32_t>(XS_TRANSACTION_END));
  EXPECT_EQ(left_behind[0].transaction_id, 41U);
  EXPECT_EQ(left_behind[0].payload, text("F"));
  EXPECT_EQ(left_behind[1].type, static_cast<std::uint32_t>(XS_UNWATCH));
  answer(left_behind[0], XS_TRANSACTION_END, text("OK"));
  answer(left_behind[1], XS_UNWATCH, text("OK"));
  EXPECT_EQ(mux_.outstanding(), 0U);
}

TEST_F(XenbusMuxTest, WhatIsGrantedAfterTheClientLeftIsGivenBack) {
  const auto start = send(first_, {XS_TRANSACTION_START, 1, 0, text("")});
  const auto watch = send(first_, {XS_WATCH, 2, 0, text("device") + text("t")});
  mux_.remove_client(first_);
  EXPECT_THAT(take(mux_.to_daemon()), IsEmpty());  // nothing is known to be held yet
  answer(start.at(0), XS_TRANSACTION_START, text("43"));
  answer(watch.at(0), XS_WATCH, text("OK"));
  const auto left_behind = take(mux_.to_daemon());
  ASSERT_THAT(left_behind, SizeIs(2));
  EXPECT_EQ(left_behind[0].transaction_id, 43U);
  EXPECT_EQ(left_behind[1].payload, watch.at(0).payload);
}

TEST_F(XenbusMuxTest, WhatTheDaemonRefusedIsNotGivenBack) {
  const auto watch = send(first_, {XS_WATCH, 1, 0, text("device") + text("t")});
  answer(watch.at(0), XS_ERROR, text("ENOSPC"));
  const std::uint32_t id = begin_transaction(first_, 44);
  const auto end = send(first_, {XS_TRANSACTION_END, 2, id, text("T")});
  answer(end.at(0), XS_ERROR, text("EAGAIN"));  // over all the same
  mux_.remove_client(first_);
  EXPECT_THAT(take(mux_.to_daemon()), IsEmpty());
}

TEST_F(XenbusMuxTest, ATransactionThatTheDaemonDidNotEndStaysTheClients) {
  const std::uint32_t id = begin_transaction(first_, 45);
  const auto end = send(first_, {XS_TRANSACTION_END, 2, id, text("maybe")});
  answer(end.at(0), XS_ERROR, text("EINVAL"));
  mux_.remove_client(first_);
  EXPECT_THAT(take(mux_.to_daemon()), SizeIs(1));
}

TEST_F(XenbusMuxTest, BadRequestsAreAnsweredHereAndDoNotReachTheDaemon) {
  const std::vector<std::pair<Message, std::string>> cases{
      {{XS_READ, 1, 99, text("a")}, "ENOENT"},                                     // not its transaction
      {{XS_WATCH, 2, 0, text("device")}, "EINVAL"},                                // no token
      {{XS_WATCH, 3, 0, text("device") + "t"}, "EINVAL"},                          // not terminated
      {{XS_WATCH, 4, 0, ""}, "EINVAL"},                                            //
      {{XS_UNWATCH, 5, 0, text("device")}, "EINVAL"},                              //
      {{XS_WATCH, 6, 0, text("device") + text(std::string(4088, 't'))}, "E2BIG"},  // no room for the prefix
      {{XS_RESET_WATCHES, 7, 0, text("")}, "ENOSYS"},                              // all clients' watches
  };
  for (const auto& [request, name] : cases) {
    EXPECT_THAT(send(first_, request), IsEmpty()) << name;
    EXPECT_EQ(take(mux_.to_client(first_)),
              (std::vector<Message>{{XS_ERROR, request.request_id, request.transaction_id, text(name)}}));
  }
}

TEST_F(XenbusMuxTest, OversizedMessageIsRefusedByItsHeaderAlone) {
  std::string header = encode({XS_WRITE, 1, 0, ""});
  const std::uint32_t length = XENSTORE_PAYLOAD_MAX + 1;
  std::memcpy(header.data() + 12, &length, sizeof length);
  EXPECT_FALSE(mux_.from_client(first_, header));
  EXPECT_TRUE(mux_.from_client(second_, encode({XS_READ, 1, 0, text("a")})));
}

TEST_F(XenbusMuxTest, RequestsBeyondTheLimitWaitForAnswers) {
  std::string many;
  for (std::uint32_t id = 0; id < 2 * XenbusMux::kMaxRequestsPerClient; ++id)
    many += encode({XS_READ, id, 0, text("a")});
  ASSERT_TRUE(mux_.from_client(first_, many));
  const auto sent = take(mux_.to_daemon());
  ASSERT_THAT(sent, SizeIs(XenbusMux::kMaxRequestsPerClient));
  EXPECT_FALSE(mux_.wants_input(first_));
  EXPECT_TRUE(mux_.wants_input(second_));
  for (const Message& request : sent) answer(request, XS_READ, "x");
  ASSERT_TRUE(mux_.resume(first_));
  EXPECT_THAT(take(mux_.to_daemon()), SizeIs(XenbusMux::kMaxRequestsPerClient));
}

TEST_F(XenbusMuxTest, RequestsOfClientsThatLeftCountToo) {
  // A client that connects, asks and leaves again and again must not pile up requests in a daemon that is slow.
  std::size_t rounds = 0;
  for (; rounds < 2 * XenbusMux::kMaxRequests; ++rounds) {
    const auto id = mux_.add_client();
    const bool wanted = mux_.wants_input(id);
    ASSERT_TRUE(mux_.from_client(id, encode({XS_READ, 1, 0, text("a")})));
    mux_.remove_client(id);
    if (!wanted) break;
  }
  EXPECT_EQ(rounds, XenbusMux::kMaxRequests);
  EXPECT_EQ(mux_.outstanding(), XenbusMux::kMaxRequests);
}

TEST_F(XenbusMuxTest, AClientThatDoesNotReadItsEventsIsReported) {
  const auto watch = send(first_, {XS_WATCH, 1, 0, text("device") + text("t")});
  const std::string token = watch.at(0).payload.substr(sizeof "device");
  const std::string event = encode({XS_WATCH_EVENT, 0, 0, text(std::string(3000, 'p')) + token});
  EXPECT_THAT(mux_.take_overflowed(), IsEmpty());
  for (std::size_t sent = 0; sent < XenbusMux::kMaxOutputBytes + event.size(); sent += event.size())
    ASSERT_TRUE(mux_.from_daemon(event));
  EXPECT_THAT(mux_.take_overflowed(), ::testing::Contains(first_));
  EXPECT_LE(mux_.to_client(first_).size(), XenbusMux::kMaxOutputBytes);
  EXPECT_THAT(mux_.take_overflowed(), IsEmpty());
}

TEST_F(XenbusMuxTest, ADaemonThatMakesNoSenseIsNoticed) {
  EXPECT_FALSE(mux_.from_daemon(encode({XS_READ, 12345, 0, "answer to nothing"})));
  XenbusMux fresh;
  EXPECT_FALSE(fresh.from_daemon(encode({XS_WATCH_EVENT, 0, 0, text("device") + text("no number")})));
  XenbusMux another;
  EXPECT_TRUE(another.from_daemon(encode({XS_WATCH_EVENT, 0, 0, text("device") + text("77:gone")})));
}

// A daemon that refuses some requests and grants the rest, and counts what it holds for clients that come and go.
class CountingDaemon {
 public:
  CountingDaemon(XenbusMux& mux, Prng& prng) : mux_(mux), prng_(prng) {}
  [[nodiscard]] std::size_t held() const { return held_; }

  void serve() {
    for (const Message& request : take(mux_.to_daemon())) {
      const Message reply = decide(request);
      ASSERT_TRUE(mux_.from_daemon(encode({reply.type, request.request_id, request.transaction_id, reply.payload})));
    }
  }

 private:
  Message decide(const Message& request) {
    const bool gives = request.type == XS_TRANSACTION_START || request.type == XS_WATCH;
    if (gives && prng_.one_in(4)) return {XS_ERROR, 0, 0, text("ENOSPC")};
    if (gives) {
      ++held_;
    } else {
      --held_;
    }
    if (request.type == XS_TRANSACTION_START) return {request.type, 0, 0, text(std::to_string(next_transaction_++))};
    return {request.type, 0, 0, text("OK")};
  }

  XenbusMux& mux_;
  Prng& prng_;
  std::size_t held_ = 0;
  std::uint32_t next_transaction_ = 1;
};

class XenbusMuxSeeds : public ::testing::TestWithParam<std::uint64_t> {};

TEST_P(XenbusMuxSeeds, ClientsThatComeAndGoLeaveNothingBehind) {
  SCOPED_TRACE("seed " + std::to_string(GetParam()));
  Prng prng(GetParam());
  XenbusMux mux;
  CountingDaemon daemon(mux, prng);
  for (int round = 0; round < 200; ++round) {
    const auto id = mux.add_client();
    for (std::uint64_t i = prng.below(6); i > 0; --i) {
      const std::uint32_t type = prng.one_in(2) ? XS_TRANSACTION_START : XS_WATCH;
      const Message request{type, static_cast<std::uint32_t>(i), 0, text("p") + text(std::to_string(i))};
      ASSERT_TRUE(mux.from_client(id, encode(request)));
      if (prng.one_in(2)) daemon.serve();
    }
    mux.remove_client(id);
    if (prng.one_in(2)) daemon.serve();
  }
  while (mux.outstanding() > 0) daemon.serve();
  EXPECT_EQ(daemon.held(), 0U);
}

INSTANTIATE_TEST_SUITE_P(Seeds, XenbusMuxSeeds, ::testing::Range<std::uint64_t>(1, 21));

}  // namespace
}  // namespace xblk::hypervisor
