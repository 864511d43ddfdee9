// The real xenstored on the shim, seen by dom0, by guests and by the stock tools.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <sys/wait.h>

extern "C" {
#include <xen/io/xs_wire.h>
}

#include <csignal>

#include "drivers/hypervisor/xenstored/xenstored_testing.hpp"

namespace xblk::hypervisor {
namespace {

using testing::connected;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::next_event;
using ::testing::Not;
using testing::RawClient;
using testing::StockTool;
using testing::tool_output;

constexpr DomId kGuest7{7};
constexpr DomId kGuest8{8};

std::string text(std::string_view string) {
  return std::string(string) + '\0';
}

class XenstoredTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto service = XenstoreService::start(testing::options_in(directory_.path()));
    ASSERT_TRUE(service) << service.error().message;
    service_ = std::move(*service);
    dom0_.emplace(connected(service_->socket_path()));
  }
  void introduce(DomId domain) {
    const Status introduced = service_->introduce(domain);
    ASSERT_TRUE(introduced) << introduced.error().message;
    const std::string home = "/local/domain/" + std::to_string(domain.value());
    ASSERT_TRUE(dom0_->make_directory(home));
    ASSERT_TRUE(dom0_->set_permissions(home, domain, {}));
  }
  [[nodiscard]] std::string xenbus(DomId domain) const { return service_->xenbus_path(domain); }

  testing::TemporaryDirectory directory_;
  std::unique_ptr<XenstoreService> service_;
  std::optional<keystore::Client> dom0_;
};

TEST_F(XenstoredTest, GuestReadsAndWritesBelowItsOwnPathOnly) {
  introduce(kGuest7);
  introduce(kGuest8);
  ASSERT_TRUE(dom0_->write("/local/domain/0/secret", "x"));
  keystore::Client seven = connected(xenbus(kGuest7));
  keystore::Client eight = connected(xenbus(kGuest8));
  ASSERT_TRUE(seven.write("device/vbd/51712/state", "1"));
  EXPECT_EQ(dom0_->read("/local/domain/7/device/vbd/51712/state").value(), "1");
  EXPECT_EQ(seven.read("/local/domain/0/secret").error().code, EACCES);
  EXPECT_EQ(seven.write("/local/domain/0/mine", "1").error().code, EACCES);
  EXPECT_EQ(eight.read("/local/domain/7/device/vbd/51712/state").error().code, EACCES);
}

TEST_F(XenstoredTest, PermissionGrantedByDom0LetsAnotherGuestRead) {
  introduce(kGuest7);
  ASSERT_TRUE(dom0_->write("/local/domain/0/backend/state", "2"));
  keystore::Client seven = connected(xenbus(kGuest7));
  EXPECT_EQ(seven.read("/local/domain/0/backend/state").error().code, EACCES);
  const KeyPermission peer{kGuest7, true, false};
  ASSERT_TRUE(dom0_->set_permissions("/local/domain/0/backend/state", kDom0, std::span(&peer, 1)));
  EXPECT_EQ(seven.read("/local/domain/0/backend/state").value(), "2");
  EXPECT_EQ(seven.write("/local/domain/0/backend/state", "3").error().code, EACCES);
}

TEST_F(XenstoredTest, GuestMayNotUseTheControlDomainsCalls) {
  introduce(kGuest7);
  keystore::Client seven = connected(xenbus(kGuest7));
  EXPECT_EQ(seven.introduce_domain(kGuest8, 0, 1).error().code, EACCES);
  EXPECT_EQ(seven.release_domain(kGuest7).error().code, EACCES);
}

TEST_F(XenstoredTest, ValuesLargerThanTheRingArriveWhole) {
  introduce(kGuest7);
  keystore::Client seven = connected(xenbus(kGuest7));
  std::string value;
  for (int i = 0; i < 1900; ++i) value += static_cast<char>('a' + i % 26);
  for (int round = 0; round < 20; ++round) {
    ASSERT_TRUE(seven.write("data/large", value + std::to_string(round)));
    EXPECT_EQ(seven.read("data/large").value(), value + std::to_string(round));
  }
}

TEST_F(XenstoredTest, GuestTransactionMeetsConflictAndIsRunAgain) {
  introduce(kGuest7);
  keystore::Client seven = connected(xenbus(kGuest7));
  ASSERT_TRUE(seven.write("counter", "1"));
  int runs = 0;
  ASSERT_TRUE(seven.transaction([&](keystore::Client& keys) -> Status {
    const auto before = keys.read("counter");
    if (++runs == 1) {
      EXPECT_TRUE(dom0_->write("/local/domain/7/counter", "10"));
    }
    return keys.write("counter", before.value() + "+");
  }));
  EXPECT_EQ(runs, 2);
  EXPECT_EQ(seven.read("counter").value(), "10+");
}

TEST_F(XenstoredTest, TwoClientsOfOneGuestMayUseTheSameWatchToken) {
  introduce(kGuest7);
  keystore::Client first = connected(xenbus(kGuest7));
  keystore::Client second = connected(xenbus(kGuest7));
  ASSERT_TRUE(first.watch("device/a", "token:1"));
  ASSERT_TRUE(second.watch("device/b", "token:1"));
  EXPECT_EQ(next_event(first), (WatchEvent{"device/a", "token:1"}));
  EXPECT_EQ(next_event(second), (WatchEvent{"device/b", "token:1"}));
  ASSERT_TRUE(dom0_->write("/local/domain/7/device/a", "1"));
  ASSERT_TRUE(dom0_->write("/local/domain/7/device/b", "1"));
  ASSERT_TRUE(dom0_->write("/local/domain/7/device/a/end", "1"));
  EXPECT_EQ(next_event(first), (WatchEvent{"device/a", "token:1"}));
  EXPECT_EQ(next_event(first), (WatchEvent{"device/a/end", "token:1"}));
  EXPECT_EQ(next_event(second), (WatchEvent{"device/b", "token:1"}));
  EXPECT_EQ(second.poll_watch(), std::nullopt);
  ASSERT_TRUE(first.unwatch("device/a", "token:1"));
  ASSERT_TRUE(dom0_->write("/local/domain/7/device/b", "2"));
  EXPECT_EQ(next_event(second), (WatchEvent{"device/b", "token:1"}));
}

TEST_F(XenstoredTest, ShutdownAndReleaseOfADomainAreTold) {
  introduce(kGuest7);
  ASSERT_TRUE(dom0_->watch("@releaseDomain", "gone"));
  EXPECT_EQ(next_event(*dom0_).token, "gone");  // at registration
  EXPECT_EQ(dom0_->poll_watch(), std::nullopt);
  service_->mark_shutdown(kGuest7);
  EXPECT_EQ(next_event(*dom0_), (WatchEvent{"@releaseDomain", "gone"}));
  RawClient client(xenbus(kGuest7));
  const Status released = service_->release(kGuest7);
  ASSERT_TRUE(released) << released.error().message;
  EXPECT_EQ(next_event(*dom0_), (WatchEvent{"@releaseDomain", "gone"}));
  EXPECT_TRUE(client.is_closed());
  EXPECT_FALSE(std::filesystem::exists(xenbus(kGuest7)));
  EXPECT_EQ(service_->release(kGuest7).error().code, ENOENT);
}

TEST_F(XenstoredTest, ADomainNumberCanBeUsedAgain) {
  for (int life = 0; life < 20; ++life) {
    introduce(kGuest7);
    EXPECT_EQ(service_->introduce(kGuest7).error().code, EEXIST);
    keystore::Client seven = connected(xenbus(kGuest7));
    ASSERT_TRUE(seven.watch("device", "t"));
    EXPECT_EQ(seven.read("life").error().code, ENOENT);  // nothing of an earlier life is left
    ASSERT_TRUE(seven.write("life", std::to_string(life)));
    ASSERT_TRUE(service_->release(kGuest7));
  }
}

TEST_F(XenstoredTest, ReservedDomainNumbersAreRefused) {
  EXPECT_EQ(service_->introduce(kDom0).error().code, EINVAL);
  EXPECT_EQ(service_->introduce(DomId(0x7FF0)).error().code, EINVAL);
}

TEST_F(XenstoredTest, StockToolsWorkAsDom0) {
  const std::string socket = service_->socket_path();
  EXPECT_EQ(tool_output(socket, "xenstore-write /tool/x hello"), "");
  EXPECT_EQ(dom0_->read("/tool/x").value(), "hello");
  EXPECT_EQ(tool_output(socket, "xenstore-read /tool/x"), "hello\n");
  EXPECT_THAT(tool_output(socket, "xenstore-ls /tool"), HasSubstr("x = \"hello\""));
}

TEST_F(XenstoredTest, StockToolsWorkAsAGuest) {
  introduce(kGuest7);
  const std::string socket = xenbus(kGuest7);
  EXPECT_EQ(tool_output(socket, "xenstore-write device/x hello"), "");
  EXPECT_EQ(tool_output(socket, "xenstore-read /local/domain/7/device/x"), "hello\n");
  EXPECT_THAT(tool_output(socket, "xenstore-ls device"), HasSubstr("x = \"hello\""));
  ASSERT_TRUE(dom0_->write("/local/domain/0/secret", "x"));
  StockTool denied(socket, "xenstore-read /local/domain/0/secret");
  EXPECT_THAT(denied.rest(), Not(HasSubstr("x\n")));
  EXPECT_NE(denied.finish(), 0);
}

TEST_F(XenstoredTest, StockWatchWorksAsAGuestBesideOtherClients) {
  introduce(kGuest7);
  StockTool watch(xenbus(kGuest7), "xenstore-watch -n 2 device");
  EXPECT_EQ(watch.line(), "device\n");  // at registration
  EXPECT_EQ(tool_output(xenbus(kGuest7), "xenstore-write device/y 1"), "");
  EXPECT_EQ(watch.line(), "device/y\n");
  EXPECT_EQ(watch.finish(), 0);
}

TEST_F(XenstoredTest, WhatADeadClientHeldIsGivenBack) {
  introduce(kGuest7);
  // More rounds than the daemon's quotas of a domain (10 transactions, 128 watches) would survive.
  for (int round = 0; round < 150; ++round) {
    RawClient client(xenbus(kGuest7));
    const auto started = client.ask({XS_TRANSACTION_START, 1, 0, text("")});
    ASSERT_TRUE(started);
    ASSERT_EQ(started->type, static_cast<std::uint32_t>(XS_TRANSACTION_START)) << started->payload;
    client.send({XS_WATCH, 2, 0, text("device") + text(std::to_string(round))});
    client.send({XS_WRITE, 3, static_cast<std::uint32_t>(std::stoul(started->payload)), text("half") + "1"});
    client.disconnect();
  }
  keystore::Client next = connected(xenbus(kGuest7));
  EXPECT_TRUE(next.watch("device", "mine"));
  EXPECT_TRUE(next.transaction([](keystore::Client& keys) { return keys.write("whole", "1"); }));
  EXPECT_EQ(next.read("half").error().code, ENOENT);
}

TEST_F(XenstoredTest, AClientCannotUseAnotherClientsTransaction) {
  introduce(kGuest7);
  RawClient owner(xenbus(kGuest7));
  RawClient thief(xenbus(kGuest7));
  const auto started = owner.ask({XS_TRANSACTION_START, 1, 0, text("")});
  ASSERT_TRUE(started);
  const auto id = static_cast<std::uint32_t>(std::stoul(started->payload));
  const auto refused = thief.ask({XS_TRANSACTION_END, 9, id, text("F")});
  ASSERT_TRUE(refused);
  EXPECT_EQ(refused->type, static_cast<std::uint32_t>(XS_ERROR));
  EXPECT_EQ(refused->payload, text("ENOENT"));
  const auto ended = owner.ask({XS_TRANSACTION_END, 2, id, text("T")});
  ASSERT_TRUE(ended);
  EXPECT_EQ(ended->type, static_cast<std::uint32_t>(XS_TRANSACTION_END));
}

TEST_F(XenstoredTest, GarbageCostsOnlyItsOwnConnection) {
  introduce(kGuest7);
  keystore::Client honest = connected(xenbus(kGuest7));
  ASSERT_TRUE(honest.write("device/x", "1"));
  RawClient oversized(xenbus(kGuest7));
  oversized.send_bytes(std::string(64, '\xff'));
  EXPECT_TRUE(oversized.is_closed());
  RawClient unknown(xenbus(kGuest7));
  const auto refused = unknown.ask({0x1234, 1, 0, text("x")});
  ASSERT_TRUE(refused);
  EXPECT_EQ(refused->payload, text("ENOSYS"));
  RawClient cut(xenbus(kGuest7));
  cut.send_bytes("half a header");
  cut.disconnect();
  EXPECT_EQ(honest.read("device/x").value(), "1");
}

TEST_F(XenstoredTest, PipelinedRequestsAreAllAnsweredInOrder) {
  introduce(kGuest7);
  RawClient client(xenbus(kGuest7));
  constexpr std::uint32_t kRequests = 300;  // far beyond the mux's and the daemon's limits of outstanding ones
  for (std::uint32_t id = 0; id < kRequests; ++id) client.send({XS_READ, 1000 + id, 0, text("/local/domain/7")});
  for (std::uint32_t id = 0; id < kRequests; ++id) {
    const auto reply = client.receive();
    ASSERT_TRUE(reply) << "after " << id << " replies";
    EXPECT_EQ(reply->request_id, 1000 + id);
  }
}

TEST_F(XenstoredTest, KilledXenstoredIsToldAndNobodyHangs) {
  introduce(kGuest7);
  RawClient idle(xenbus(kGuest7));
  keystore::Client watcher = connected(xenbus(kGuest7));
  ASSERT_TRUE(watcher.watch("device", "t"));
  EXPECT_EQ(service_->failure(), std::nullopt);
  ASSERT_EQ(::kill(service_->xenstored_pid(), SIGKILL), 0);
  ASSERT_TRUE(testing::readable_in_time(service_->failure_fd()));
  const std::string failure = service_->failure().value();
  EXPECT_THAT(failure, HasSubstr("killed by signal 9"));
  EXPECT_THAT(failure, Not(HasSubstr("\n")));
  EXPECT_TRUE(idle.is_closed());
  EXPECT_EQ(watcher.read("device").error().code, ENOTCONN);
  EXPECT_EQ(watcher.write("device", "1").error().code, ENOTCONN);
  EXPECT_EQ(dom0_->read("/").error().code, ENOTCONN);
  EXPECT_EQ(service_->introduce(kGuest8).error().message, failure);
  EXPECT_TRUE(service_->release(kGuest7));
}

TEST_F(XenstoredTest, NothingIsLeftAfterStop) {
  introduce(kGuest7);
  const pid_t pid = service_->xenstored_pid();
  service_->stop();
  EXPECT_EQ(::kill(pid, 0), -1);
  EXPECT_EQ(errno, ESRCH);
  EXPECT_FALSE(std::filesystem::exists(service_->socket_path()));
  EXPECT_FALSE(std::filesystem::exists(xenbus(kGuest7)));
  EXPECT_EQ(service_->failure(), std::nullopt);
}

TEST_F(XenstoredTest, ADirectoryInUseIsRefused) {
  auto second = XenstoreService::start(testing::options_in(directory_.path()));
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, EADDRINUSE);
  EXPECT_THAT(second.error().message, HasSubstr(directory_.path()));
  EXPECT_TRUE(dom0_->write("/still", "here"));
}

TEST(XenstoredStart, LeftoversOfAKilledRunAreReplaced) {
  const testing::TemporaryDirectory directory;
  for (int run = 0; run < 2; ++run) {
    auto service = XenstoreService::start(testing::options_in(directory.path()));
    ASSERT_TRUE(service) << service.error().message;
    ASSERT_TRUE((*service)->introduce(kGuest7));
    // As after a crash: the sockets stay behind.
    std::filesystem::create_hard_link((*service)->socket_path(), directory.path() + "/kept");
    (*service)->stop();
    std::filesystem::rename(directory.path() + "/kept", (*service)->socket_path());
  }
}

TEST(XenstoredStart, TooLongADirectoryIsNamed) {
  const testing::TemporaryDirectory directory;
  const std::string deep = directory.path() + "/" + std::string(100, 'd');
  const auto service = XenstoreService::start(testing::options_in(deep));
  ASSERT_FALSE(service);
  EXPECT_EQ(service.error().code, ENAMETOOLONG);
  EXPECT_THAT(service.error().message, HasSubstr("107"));
}

TEST(XenstoredStart, MissingFilesAreNamed) {
  const testing::TemporaryDirectory directory;
  auto options = testing::options_in(directory.path());
  options.shim_path = "/nowhere/shim.so";
  EXPECT_THAT(XenstoreService::start(options).error().message, HasSubstr("/nowhere/shim.so"));
  options = testing::options_in(directory.path());
  options.xenstored_path = "/nowhere/xenstored";
  EXPECT_THAT(XenstoreService::start(options).error().message, HasSubstr("install xen-utils"));
}

TEST(XenstoredStart, ADaemonThatEndsAtOnceIsToldWithItsLastWords) {
  const testing::TemporaryDirectory directory;
  auto options = testing::options_in(directory.path());
  options.xenstored_path = "/bin/false";
  EXPECT_THAT(XenstoreService::start(options).error().message, HasSubstr("exited with status 1"));
}

TEST(XenstoredStart, XenstoredDiesWithItsHost) {
  const testing::TemporaryDirectory directory;
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const pid_t host = ::fork();
  ASSERT_GE(host, 0);
  if (host == 0) {
    auto service = XenstoreService::start(testing::options_in(directory.path()));
    const pid_t daemon = service ? (*service)->xenstored_pid() : -1;
    if (::write(ends[1], &daemon, sizeof daemon) < 0) ::_exit(1);
    while (true) ::pause();
  }
  pid_t daemon = -1;
  ASSERT_EQ(::read(ends[0], &daemon, sizeof daemon), static_cast<ssize_t>(sizeof daemon));
  ASSERT_GT(daemon, 0);
  const UniqueFd pidfd(static_cast<int>(::syscall(SYS_pidfd_open, daemon, 0U)));
  ASSERT_TRUE(pidfd);
  ASSERT_EQ(::kill(host, SIGKILL), 0);
  ::waitpid(host, nullptr, 0);
  EXPECT_TRUE(testing::readable_in_time(pidfd.get()));
  ::close(ends[0]);
  ::close(ends[1]);
}

}  // namespace
}  // namespace xblk::hypervisor
