// The emulation through its socket: the conformance suite, attaching, and guests that misbehave or die.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "drivers/env/real/real_env.hpp"
#include "drivers/hypervisor/dom0.hpp"
#include "drivers/hypervisor/emu/emu_guest.hpp"
#include "drivers/hypervisor/emu/guest_server.hpp"
#include "drivers/hypervisor/emu/process_limits.hpp"
#include "drivers/hypervisor/hypervisor.hpp"
#include "drivers/platform/conformance/conformance.hpp"

namespace xblk::hypervisor::emu {
namespace {

using ::testing::HasSubstr;
using RealHypervisor = Hypervisor<env::RealEnv>;

class TempDir {
 public:
  TempDir() {
    std::string pattern = (std::filesystem::temp_directory_path() / "xblk-emu-XXXXXX").string();
    path_ = ::mkdtemp(pattern.data());
  }
  ~TempDir() { std::filesystem::remove_all(path_); }
  [[nodiscard]] std::string socket() const { return path_ + "/guests"; }

 private:
  std::string path_;
};

// The host, with its control loop on a thread.
class Host {
 public:
  explicit Host(GuestServerConfig config = {}) : wake_(std::move(*env::RealDoorbell::create())) {
    config.socket_path = directory.socket();
    GuestServerEvents events;
    events.on_guest_gone = [this](DomId) { ++gone; };
    events.on_refused = [this](const std::string& line) {
      const std::lock_guard guard(lines_mutex_);
      lines_.push_back(line);
    };
    auto listening = GuestServer::listen(hypervisor, config, events);
    EXPECT_TRUE(listening) << listening.error().message;
    server_ = std::move(*listening);
    thread_ = std::thread([this] { run(); });
  }
  ~Host() { stop(); }
  // Death of the host, as far as guests can see it.
  void stop() {
    if (!thread_.joinable()) return;
    wake_.ring();
    thread_.join();
    server_.reset();
  }
  [[nodiscard]] std::vector<std::string> lines() {
    const std::lock_guard guard(lines_mutex_);
    return lines_;
  }
  // For what the control loop does in its own time; the limit only ends a test that fails.
  template <class Condition>
  [[nodiscard]] static bool eventually(Condition condition) {
    for (int i = 0; i < 10'000 && !condition(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return condition();
  }

  TempDir directory;
  env::RealEnv env;
  RealHypervisor hypervisor{env};
  Dom0<env::RealEnv> dom0{hypervisor};
  std::atomic<int> gone{0};

 private:
  void run() {
    std::array<pollfd, 2> sources{pollfd{server_->fd(), POLLIN, 0}, pollfd{wake_.waitable(), POLLIN, 0}};
    for (;;) {
      ::poll(sources.data(), sources.size(), -1);
      if (sources[1].revents != 0) return;
      server_->handle();
    }
  }
  env::RealDoorbell wake_;
  std::unique_ptr<GuestServer> server_;
  std::mutex lines_mutex_;
  std::vector<std::string> lines_;
  std::thread thread_;
};

// ---- Conformance ----------------------------------------------------------------------------------------------------

class SocketRig {
 public:
  using Env = env::RealEnv;
  using Front = EmuGuest;
  using Back = Dom0<env::RealEnv>;
  static constexpr bool kScatteredRings = true;
  static std::string unavailable() { return ""; }

  SocketRig() { front_ = std::move(*EmuGuest::attach(host_.directory.socket(), DomId(5), 256)); }
  Env& env() { return host_.env; }
  Front& front() { return *front_; }
  Back& back() { return host_.dom0; }
  std::string leaks() {
    const HypervisorUsage usage = host_.hypervisor.usage();
    if (usage == HypervisorUsage{.domains = 1}) return "";
    return fmt::format("{} ports, {} mappings, {} active grants", usage.ports, usage.mappings, usage.active_grants);
  }

 private:
  Host host_;
  std::unique_ptr<EmuGuest> front_;
};

}  // namespace
}  // namespace xblk::hypervisor::emu

namespace xblk::platform {
INSTANTIATE_TYPED_TEST_SUITE_P(Emu, Conformance, ::testing::Types<hypervisor::emu::SocketRig>);
}  // namespace xblk::platform

namespace xblk::hypervisor::emu {
namespace {

// ---- Attaching ------------------------------------------------------------------------------------------------------

TEST(EmuGuest, OneProcessPerDomain) {
  Host host;
  auto first = EmuGuest::attach(host.directory.socket(), DomId(1), 16);
  ASSERT_TRUE(first) << first.error().message;
  auto second = EmuGuest::attach(host.directory.socket(), DomId(1), 16);
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, EBUSY);
  EXPECT_THAT(second.error().message, HasSubstr("domain 1 exists already"));
  EXPECT_TRUE(EmuGuest::attach(host.directory.socket(), DomId(2), 16)) << "another domain is free";
  first->reset();
  EXPECT_TRUE(Host::eventually([&] { return EmuGuest::attach(host.directory.socket(), DomId(1), 16).has_value(); }));
}

TEST(EmuGuest, RefusesWhatTheHostCannotGive) {
  Host host({.pages_max = 64});
  auto greedy = EmuGuest::attach(host.directory.socket(), DomId(1), 65);
  ASSERT_FALSE(greedy);
  EXPECT_EQ(greedy.error().code, ENOMEM);
  auto empty = EmuGuest::attach(host.directory.socket(), DomId(1), 0);
  ASSERT_FALSE(empty);
  EXPECT_EQ(empty.error().code, EINVAL);
  auto control = EmuGuest::attach(host.directory.socket(), kDom0, 1);
  ASSERT_FALSE(control);
  EXPECT_EQ(control.error().code, EINVAL);
  EXPECT_FALSE(EmuGuest::attach(host.directory.socket(), DomId(0x7ff0), 1));
  EXPECT_EQ(host.hypervisor.usage().domains, 0u);
}

TEST(EmuGuest, SaysWhenThereIsNoHost) {
  const TempDir directory;
  auto guest = EmuGuest::attach(directory.socket(), DomId(1), 1);
  ASSERT_FALSE(guest);
  EXPECT_EQ(guest.error().code, ENODEV);
  EXPECT_THAT(guest.error().message, HasSubstr("xblk emu up"));
  EXPECT_EQ(EmuGuest::attach(std::string(200, 'x'), DomId(1), 1).error().code, ENAMETOOLONG);
}

TEST(EmuGuest, PortsAreLimitedPerGuest) {
  Host host({.limits = {.ports = 4}});
  auto guest = EmuGuest::attach(host.directory.socket(), DomId(1), 1);
  ASSERT_TRUE(guest);
  for (int i = 0; i < 3; ++i) EXPECT_TRUE((*guest)->allocate_port(kDom0));
  auto one_too_many = (*guest)->allocate_port(kDom0);
  ASSERT_FALSE(one_too_many);
  EXPECT_EQ(one_too_many.error().code, ENOSPC);
  (*guest)->close_port(EventPort(2));
  EXPECT_TRUE((*guest)->allocate_port(kDom0));
}

TEST(EmuGuest, NoticesThatTheHostIsGone) {
  Host host;
  auto guest = EmuGuest::attach(host.directory.socket(), DomId(1), 4);
  ASSERT_TRUE(guest);
  auto port = (*guest)->allocate_port(kDom0);
  ASSERT_TRUE(port);
  EXPECT_TRUE((*guest)->ping());
  EXPECT_FALSE((*guest)->host_gone());
  host.stop();
  env::RealEnv env;
  env::RealEnv::WaitSet set(env);
  ASSERT_TRUE(set.add((*guest)->host_fd(), 1));
  ASSERT_TRUE(set.add((*guest)->waitable(*port), 2));
  std::vector<std::uint64_t> ready;
  set.wait(Instant::never(), ready);
  EXPECT_THAT(ready, ::testing::UnorderedElementsAre(1, 2)) << "both kinds of waiter wake up";
  EXPECT_TRUE((*guest)->host_gone());
  EXPECT_EQ((*guest)->ping().error().code, ENODEV);
  EXPECT_EQ((*guest)->allocate_port(kDom0).error().code, ENODEV);
  (*guest)->notify(*port);  // into the void
  (*guest)->close_port(*port);
}

TEST(GuestServer, TakesOverASocketOnlyFromADeadHost) {
  TempDir directory;
  env::RealEnv env;
  RealHypervisor hypervisor(env);
  const GuestServerConfig config{.socket_path = directory.socket()};
  auto first = GuestServer::listen(hypervisor, config, {});
  ASSERT_TRUE(first) << first.error().message;
  auto second = GuestServer::listen(hypervisor, config, {});
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, EADDRINUSE);
  EXPECT_TRUE(std::filesystem::exists(directory.socket())) << "the loser must not remove the winner's socket";
  first->reset();
  EXPECT_FALSE(std::filesystem::exists(directory.socket()));
  // What a killed host leaves behind: a bound socket that nobody listens on.
  const int stale = ::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  directory.socket().copy(address.sun_path, sizeof address.sun_path - 1);
  ASSERT_EQ(::bind(stale, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  ::close(stale);
  EXPECT_TRUE(GuestServer::listen(hypervisor, config, {}));
}

TEST(ProcessLimits, CapacityIsBelowTheSysctlAndFitsAHandle) {
  std::uint64_t sysctl = 0;
  ASSERT_TRUE(std::ifstream("/proc/sys/vm/max_map_count") >> sysctl);
  EXPECT_LT(mapping_capacity(), sysctl);
  EXPECT_LE(mapping_capacity(), kMaptrackLimitMax);
  EXPECT_GT(mapping_capacity(), 0u);
  EXPECT_TRUE(raise_descriptor_limit());
}

// ---- Guests that do not follow the protocol -------------------------------------------------------------------------

// Speaks to the socket without EmuGuest's manners.
class RawGuest {
 public:
  explicit RawGuest(const std::string& path) : socket_(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0)) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    path.copy(address.sun_path, sizeof address.sun_path - 1);
    EXPECT_EQ(::connect(socket_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  }
  void send(const void* data, std::size_t size) { EXPECT_GE(::send(socket_.get(), data, size, MSG_NOSIGNAL), 0); }
  Result<Received> request(Message message) {
    send(&message, sizeof message);
    return receive_message(socket_.get());
  }
  Result<Received> attach(DomId id, std::uint32_t pages) {
    Message message;
    message.type = MessageType::attach;
    message.domain = id.value();
    message.pages = pages;
    return request(message);
  }
  [[nodiscard]] int socket() const { return socket_.get(); }

 private:
  Descriptor socket_;
};

TEST(HostileGuest, GarbageCostsOnlyItsOwnConnection) {
  Host host;
  auto bystander = EmuGuest::attach(host.directory.socket(), DomId(1), 4);
  ASSERT_TRUE(bystander);
  const auto disconnected = [](RawGuest& guest) { return receive_message(guest.socket()).error().code == ENODEV; };
  {
    RawGuest guest(host.directory.socket());
    guest.send("hello", 5);
    EXPECT_TRUE(disconnected(guest));
  }
  {
    RawGuest guest(host.directory.socket());
    std::vector<std::byte> large(4096);
    guest.send(large.data(), large.size());
    EXPECT_TRUE(disconnected(guest));
  }
  {
    RawGuest guest(host.directory.socket());
    Message message;
    message.version = kVersion + 1;
    guest.send(&message, sizeof message);
    EXPECT_TRUE(disconnected(guest));
    EXPECT_THAT(host.lines().back(), HasSubstr("version"));
  }
  {
    RawGuest guest(host.directory.socket());
    Message message;
    message.type = MessageType::ping;
    guest.send(&message, sizeof message);
    EXPECT_TRUE(disconnected(guest)) << "a request before attach";
  }
  {
    RawGuest guest(host.directory.socket());
    EXPECT_TRUE(guest.attach(DomId(2), 1));
    EXPECT_FALSE(guest.attach(DomId(3), 1)) << "a second attach";
  }
  EXPECT_TRUE((*bystander)->ping());
  EXPECT_TRUE(Host::eventually([&] { return host.hypervisor.usage().domains == 1; }));
}

TEST(HostileGuest, OneThatReadsNoRepliesIsDisconnected) {
  Host host;
  RawGuest guest(host.directory.socket());
  ASSERT_TRUE(guest.attach(DomId(1), 1));
  Message message;
  message.type = MessageType::ping;
  while (::send(guest.socket(), &message, sizeof message, MSG_NOSIGNAL) > 0) {
  }
  EXPECT_THAT(errno, ::testing::AnyOf(EPIPE, ECONNRESET));
  EXPECT_TRUE(Host::eventually([&] { return host.gone == 1; }));
  EXPECT_TRUE(EmuGuest::attach(host.directory.socket(), DomId(1), 1)) << "the host goes on";
}

TEST(HostileGuest, MemoryCannotBeResizedOnlyPunched) {
  Host host;
  RawGuest guest(host.directory.socket());
  auto attached = guest.attach(DomId(1), 4);
  ASSERT_TRUE(attached) << attached.error().message;
  for (const Descriptor& memory : attached->descriptors) {
    EXPECT_NE(::ftruncate(memory.get(), 0), 0);
    EXPECT_NE(::ftruncate(memory.get(), 1 << 20), 0);
    EXPECT_NE(::fcntl(memory.get(), F_ADD_SEALS, F_SEAL_WRITE), 0);
  }
  auto* entries = static_cast<GrantEntry*>(
      ::mmap(nullptr, kPageSize, PROT_READ | PROT_WRITE, MAP_SHARED, attached->descriptors[1].get(), 0));
  ASSERT_NE(entries, MAP_FAILED);
  publish_grant(entries[9], kDom0, FrameNumber(2), platform::Access::read_write);
  platform::LockWait wait;
  platform::MapOp op;
  op.gref = GrantRef(9);
  host.dom0.map(DomId(1), {&op, 1}, wait);
  ASSERT_EQ(op.status, platform::GrantStatus::okay);
  op.address[0] = std::byte{7};
  // The data page and the very entry of the mapping vanish under the host: it reads zeros, and its books stay right.
  constexpr int kPunch = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;
  EXPECT_EQ(::fallocate(attached->descriptors[0].get(), kPunch, 0, 4 * kPageSize), 0);
  EXPECT_EQ(::fallocate(attached->descriptors[1].get(), kPunch, 0, kPageSize), 0);
  EXPECT_EQ(op.address[0], std::byte{0});
  platform::UnmapOp unmap{op.handle, op.address};
  host.dom0.unmap({&unmap, 1}, wait);
  EXPECT_EQ(unmap.status, platform::GrantStatus::okay);
  EXPECT_EQ(host.hypervisor.usage().mappings, 0u);
  ::munmap(entries, kPageSize);
}

// O_NONBLOCK belongs to the open file, which a passed descriptor shares (real_bell.hpp).
TEST(HostileGuest, CannotMakeTheHostSleepOnAnEventChannel) {
  Host host;
  RawGuest guest(host.directory.socket());
  ASSERT_TRUE(guest.attach(DomId(1), 1));
  Message message;
  message.type = MessageType::allocate_port;
  auto port = guest.request(message);
  ASSERT_TRUE(port);
  ASSERT_EQ(port->descriptor_count, 2u);
  const int receiver = port->descriptors[0].get();
  const int sender = port->descriptors[1].get();
  auto bound = host.dom0.bind_interdomain(DomId(1), EventPort(port->message.port));
  ASSERT_TRUE(bound);
  ::fcntl(receiver, F_SETFL, 0);
  ::fcntl(sender, F_SETFL, 0);
  std::uint64_t drained = 0;
  EXPECT_EQ(::read(sender, &drained, sizeof drained), 8) << "steal the event of the bind";
  EXPECT_FALSE(host.dom0.consume(*bound)) << "must not sleep on the empty eventfd";
  // Fill its own pipe through a writing end of its own, then let the host ring.
  const Descriptor writer(::open(fmt::format("/proc/self/fd/{}", receiver).c_str(), O_WRONLY | O_NONBLOCK));
  ASSERT_GE(writer.get(), 0);
  std::vector<char> junk(4096);
  while (::write(writer.get(), junk.data(), junk.size()) > 0) {
  }
  host.dom0.notify(*bound);  // must not sleep on the full pipe
  // Close everything: ringing a closed guest raises no SIGPIPE.
  port->descriptors[0] = Descriptor();
  host.dom0.notify(*bound);
  host.dom0.close_port(*bound);
}

// ---- A guest in another process -------------------------------------------------------------------------------------

// Runs `body` as a guest in a child; what it writes to `out` arrives at read(). Fork before the host has threads.
class ChildGuest {
 public:
  using Body = std::function<void(EmuGuest&, int out)>;
  ChildGuest(const std::string& socket, DomId id, const Body& body) {
    std::array<int, 2> ends{};
    EXPECT_EQ(::pipe(ends.data()), 0);
    child_ = ::fork();
    if (child_ == 0) {
      ::close(ends[0]);
      auto guest = EmuGuest::attach(socket, id, 64);
      for (int i = 0; !guest && i < 10'000; ++i) {
        ::usleep(1000);
        guest = EmuGuest::attach(socket, id, 64);
      }
      if (guest) body(**guest, ends[1]);
      ::pause();  // until killed
      ::_exit(0);
    }
    ::close(ends[1]);
    from_child_ = Descriptor(ends[0]);
  }
  ~ChildGuest() { kill(); }
  void kill() {
    if (child_ <= 0) return;
    ::kill(child_, SIGKILL);
    ::waitpid(child_, nullptr, 0);
    child_ = -1;
  }
  template <class T>
  T read() {
    T value{};
    EXPECT_EQ(::read(from_child_.get(), &value, sizeof value), static_cast<ssize_t>(sizeof value));
    return value;
  }
  template <class T>
  static void write(int out, const T& value) {
    static_cast<void>(!::write(out, &value, sizeof value));
  }

 private:
  pid_t child_ = -1;
  Descriptor from_child_;
};

TEST(ChildGuest, DiesWhileItsPagesAreMapped) {
  struct Offer {
    GrantRef gref;
    EventPort port;
  };
  // The directory must exist before the fork, and the host's thread only after it.
  TempDir directory;
  ChildGuest child(directory.socket(), DomId(4), [](EmuGuest& guest, int out) {
    auto block = guest.allocate_pages(kDom0, 1);
    block->address[1] = std::byte{0x42};
    const Offer offer{*guest.grant(kDom0, block->first_frame, platform::Access::read_write),
                      *guest.allocate_port(kDom0)};
    guest.notify(offer.port);
    ChildGuest::write(out, offer);
  });
  env::RealEnv env;
  RealHypervisor hypervisor(env);
  Dom0<env::RealEnv> dom0(hypervisor);
  int attached = 0;
  int gone = 0;
  auto server = GuestServer::listen(hypervisor, {.socket_path = directory.socket()},
                                    {.on_guest_attached =
                                         [&](const AttachedGuest& guest) {
                                           ++attached;
                                           EXPECT_EQ(guest.domain, DomId(4));
                                           EXPECT_NE(guest.pid, ::getpid());
                                         },
                                     .on_guest_gone = [&](DomId) { ++gone; },
                                     .on_refused = {}});
  ASSERT_TRUE(server) << server.error().message;
  const auto serve_until = [&](auto done) {
    pollfd source{(*server)->fd(), POLLIN, 0};
    while (!done()) {
      ASSERT_GT(::poll(&source, 1, 20'000), 0) << "the guest does nothing";
      (*server)->handle();
    }
  };
  serve_until([&] { return hypervisor.usage().ports == 1; });
  const auto offer = child.read<Offer>();
  EXPECT_EQ(attached, 1);

  platform::LockWait wait;
  platform::MapOp op;
  op.gref = offer.gref;
  dom0.map(DomId(4), {&op, 1}, wait);
  ASSERT_EQ(op.status, platform::GrantStatus::okay);
  EXPECT_EQ(op.address[1], std::byte{0x42});
  auto port = dom0.bind_interdomain(DomId(4), offer.port);
  ASSERT_TRUE(port) << port.error().message;
  EXPECT_TRUE(dom0.consume(*port));

  child.kill();
  serve_until([&] { return gone == 1; });
  EXPECT_EQ(op.address[1], std::byte{0x42}) << "a mapping outlives its guest";
  dom0.notify(*port);
  platform::MapOp late;
  late.gref = offer.gref;
  dom0.map(DomId(4), {&late, 1}, wait);
  EXPECT_EQ(late.status, platform::GrantStatus::bad_domain);
  platform::UnmapOp unmap{op.handle, op.address};
  dom0.unmap({&unmap, 1}, wait);
  EXPECT_EQ(unmap.status, platform::GrantStatus::okay);
  dom0.close_port(*port);
  EXPECT_EQ(hypervisor.usage(), HypervisorUsage{});
}

}  // namespace
}  // namespace xblk::hypervisor::emu
