#include "drivers/hypervisor/xenstored/xenstore_service.hpp"

#include <sys/epoll.h>
#include <sys/eventfd.h>

#include <chrono>
#include <filesystem>
#include <future>

#include "drivers/hypervisor/xenstored/unix_socket.hpp"

namespace xblk::hypervisor {
namespace {

constexpr const char* kDebianXenstored = "/usr/lib/xen-4.17/bin/xenstored";
constexpr const char* kShimName = "libxblk-xenstored-shim.so";
constexpr std::uint16_t kFirstReservedDomain = 0x7FF0;  // DOMID_FIRST_RESERVED (xen.h)
constexpr auto kStartLimit = std::chrono::seconds(20);  // normally 10 ms; a loaded machine gets time
constexpr auto kStartPoll = std::chrono::milliseconds(2);
// The guest's end of its event channel, as told to xenstored. The shim binds by domain, so any valid number will do.
constexpr std::uint32_t kGuestPort = 1;

std::string find_shim() {
  std::error_code ignored;
  const auto directory = std::filesystem::read_symlink("/proc/self/exe", ignored).parent_path();
  for (const auto& candidate : {directory / kShimName, directory.parent_path() / XBLK_LIBRARY_DIRECTORY / kShimName}) {
    if (std::filesystem::exists(candidate, ignored)) return candidate;
  }
  return directory / kShimName;  // spawn() names it when it reports that there is none
}

Status prepare_directory(const std::string& directory) {
  const std::string longest = directory + "/xenbus-65535";
  if (longest.size() > kMaxSocketPath)
    return fail(ENAMETOOLONG, "xenstored: directory " + directory +
                                  " is too long: a unix socket path allows 107 bytes, " + longest + " has " +
                                  std::to_string(longest.size()) + "; choose a shorter one");
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  if (!error) std::filesystem::permissions(directory, std::filesystem::perms::owner_all, error);
  if (error) return fail(error.value(), "xenstored: cannot use directory " + directory + ": " + error.message());
  if (keystore::Client::connect(directory + "/socket"))
    return fail(EADDRINUSE,
                "xenstored: one is already running in " + directory + "; stop it or choose another directory");
  return {};
}

}  // namespace

Result<std::unique_ptr<XenstoreService>> XenstoreService::start(Options options) {
  if (options.shim_path.empty()) options.shim_path = find_shim();
  if (options.xenstored_path.empty()) options.xenstored_path = kDebianXenstored;
  if (Status ready = prepare_directory(options.directory); !ready) return tl::unexpected(ready.error());
  auto loop = PollLoop::create();
  if (!loop) return tl::unexpected(loop.error());
  UniqueFd failure_event(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!failure_event) return fail_errno("eventfd");

  std::unique_ptr<XenstoreService> service(
      new XenstoreService(std::move(options), std::move(*loop), std::move(failure_event)));
  Status started;
  service->on_loop([&] { started = service->spawn(); });
  if (started) started = service->connect();
  if (!started) return tl::unexpected(started.error());
  return service;
}

XenstoreService::XenstoreService(Options options, std::unique_ptr<PollLoop> loop, UniqueFd failure_event)
    : options_(std::move(options)), loop_(std::move(loop)), failure_event_(std::move(failure_event)) {
  thread_ = std::thread([this] { loop_->run(); });
}

XenstoreService::~XenstoreService() {
  stop();
}

std::string XenstoreService::xenbus_path(DomId domain) const {
  return options_.directory + "/xenbus-" + std::to_string(domain.value());
}

// Runs `task` on the loop's thread and waits for it.
void XenstoreService::on_loop(const std::function<void()>& task) {
  std::promise<void> done;
  loop_->post([&] {
    task();
    done.set_value();
  });
  done.get_future().wait();
}

// On the loop's thread, which lives as long as the daemon: see XenstoredProcess::spawn().
Status XenstoreService::spawn() {
  auto control = message_socket_pair();
  if (!control) return tl::unexpected(control.error());
  auto shim = ShimServer::create(*loop_, std::move(control->first), host_of_shim());
  if (!shim) return tl::unexpected(shim.error());
  auto process = XenstoredProcess::spawn(options_.xenstored_path, options_.shim_path, options_.directory,
                                         std::move(control->second));
  if (!process) return tl::unexpected(process.error());
  if (Status added = loop_->add(process->pidfd(), EPOLLIN, [this](std::uint32_t) { on_xenstored_end(); }); !added)
    return added;
  pid_ = process->pid();
  process_ = std::move(*process);
  shim_ = std::move(*shim);
  return {};
}

ShimServer::Host XenstoreService::host_of_shim() {
  return {
      .state =
          [this](DomId domain) {
            if (domain == kDom0) return DomainState::kRunning;
            const auto found = domains_.find(domain);
            return found == domains_.end() ? DomainState::kAbsent : found->second.state;
          },
      .ring_fd =
          [this](DomId domain) {
            const auto found = domains_.find(domain);
            return found == domains_.end() ? -1 : found->second.ring.fd();
          },
      .on_notify =
          [this](DomId domain) {
            const auto found = domains_.find(domain);
            if (found != domains_.end() && found->second.device) found->second.device->on_event();
          },
      .on_lost = [this] { process_->kill(); },  // its end is noticed and told like any other
  };
}

Status XenstoreService::connect() {
  const auto limit = std::chrono::steady_clock::now() + kStartLimit;
  while (true) {
    auto client = keystore::Client::connect(socket_path());
    if (client && client->list("/")) {
      control_ = std::move(*client);
      return {};
    }
    if (auto failed = failure()) return fail(EIO, *failed);
    if (std::chrono::steady_clock::now() > limit) {
      return fail(ETIMEDOUT, "xenstored: no answer at " + socket_path() +
                                 " within 20 s; its last words: " + last_log_line(options_.directory));
    }
    std::this_thread::sleep_for(kStartPoll);
  }
}

Status XenstoreService::introduce(DomId domain) {
  const std::string name = "domain " + std::to_string(domain.value());
  if (domain == kDom0 || domain.value() >= kFirstReservedDomain)
    return fail(EINVAL, "xenstored: cannot introduce " + name + ": guests are 1 to " +
                            std::to_string(kFirstReservedDomain - 1));
  if (auto failed = failure()) return fail(EIO, *failed);
  Status done;
  on_loop([&] { done = create_domain(domain); });
  if (!done) return done;
  done = control_->introduce_domain(domain, 0, kGuestPort);
  // The socket comes last: introduction resets the ring, so nothing may be on it before.
  if (done) on_loop([&] { done = create_device(domain); });
  if (!done) on_loop([&] { domains_.erase(domain); });
  return done;
}

Status XenstoreService::create_domain(DomId domain) {
  if (domains_.contains(domain))
    return fail(EEXIST, "xenstored: domain " + std::to_string(domain.value()) + " exists already");
  auto ring = env::RealMemory::create("xenstore-ring-" + std::to_string(domain.value()), 1);
  if (!ring) return tl::unexpected(ring.error());
  domains_[domain].ring = std::move(*ring);
  return {};
}

Status XenstoreService::create_device(DomId domain) {
  Domain& entry = domains_.at(domain);
  auto device = XenbusDevice::create(*loop_, xenbus_path(domain), entry.ring.base(), [this, domain] {
    if (shim_) shim_->send_event(domain);
  });
  if (!device) return tl::unexpected(device.error());
  entry.device = std::move(*device);
  return {};
}

Status XenstoreService::release(DomId domain) {
  bool known = false;
  on_loop([&] {
    const auto found = domains_.find(domain);
    known = found != domains_.end();
    if (known) found->second.device.reset();
  });
  if (!known) return fail(ENOENT, "xenstored: there is no domain " + std::to_string(domain.value()));
  Status released;
  if (!failure()) released = control_->release_domain(domain);
  on_loop([&] { domains_.erase(domain); });
  return released;
}

void XenstoreService::mark_shutdown(DomId domain) {
  on_loop([&] {
    const auto found = domains_.find(domain);
    if (found == domains_.end()) return;
    found->second.state = DomainState::kShutdown;
    if (shim_) shim_->send_domain_exception();
  });
}

std::optional<std::string> XenstoreService::failure() const {
  const std::scoped_lock lock(failure_mutex_);
  return failure_;
}

void XenstoreService::on_xenstored_end() {
  loop_->remove(process_->pidfd());
  std::string message = "xenstored (pid " + std::to_string(pid_) + ", " + options_.directory + ") " + process_->reap();
  if (const std::string last = last_log_line(options_.directory); !last.empty()) message += "; its last words: " + last;
  // Nobody will answer the guests any more: their clients shall see the end of the stream, not wait.
  for (auto& [domain, entry] : domains_) entry.device.reset();
  shim_.reset();
  {
    const std::scoped_lock lock(failure_mutex_);
    failure_ = std::move(message);
  }
  ::eventfd_write(failure_event_.get(), 1);
}

void XenstoreService::stop() {
  if (!thread_.joinable()) return;
  on_loop([&] {
    if (process_ && process_->pidfd() >= 0) {
      loop_->remove(process_->pidfd());
      process_->kill_and_reap();
    }
    domains_.clear();
    shim_.reset();
    loop_->stop();
  });
  thread_.join();
  control_.reset();
  ::unlink(socket_path().c_str());
}

}  // namespace xblk::hypervisor
