#include "drivers/apps/emu_host/emu_host.hpp"

#include <fcntl.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include <fmt/format.h>

#include "drivers/hypervisor/emu/process_limits.hpp"

namespace xblk::apps {
namespace {

// libxenstore's descriptor stays quiet when xenstored dies; the service's failure_fd does not, so this is only a net.
constexpr Nanos kLookAround = millis(500);

void log_line(const std::string& line) {
  fmt::print(stderr, "xblk-emu-host: {}\n", line);
}

Status make_directory(const std::string& path) {
  if (::mkdir(path.c_str(), 0755) != 0 && errno != EEXIST) return fail_errno("create directory " + path);
  return {};
}

Status write_file(const std::string& path, const std::string& content) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (fd < 0) return fail_errno("create " + path);
  const bool whole = ::write(fd, content.data(), content.size()) == static_cast<ssize_t>(content.size());
  const Status status = whole ? Status{} : fail_errno("write " + path);
  ::close(fd);
  return status;
}

// Any other signal, and a descriptor that cannot be read, ends the host.
bool is_restart(int signal_fd) {
  signalfd_siginfo info{};
  return ::read(signal_fd, &info, sizeof info) == sizeof info && info.ssi_signo == SIGUSR1;
}

hypervisor::HypervisorConfig hypervisor_config(const HostOptions& options) {
  hypervisor::HypervisorConfig config;
  config.grant_locks = options.grant_locks;
  const std::uint32_t capacity = hypervisor::emu::mapping_capacity();
  config.maptrack_limit = options.mappings_max == 0 ? capacity : std::min(options.mappings_max, capacity);
  return config;
}

}  // namespace

EmuHost::EmuHost(const HostOptions& options)
    : options_(options), hypervisor_(env_, hypervisor_config(options)), dom0_(hypervisor_) {}

Result<std::unique_ptr<EmuHost>> EmuHost::start(const HostOptions& options) {
  std::unique_ptr<EmuHost> host(new EmuHost(options));
  for (const auto step :
       {&EmuHost::open_directory, &EmuHost::listen, &EmuHost::start_xenstore, &EmuHost::introduce_guests,
        &EmuHost::start_workers, &EmuHost::start_backends, &EmuHost::write_description}) {
    if (auto done = (host.get()->*step)(); !done) return tl::unexpected(done.error());
  }
  return host;
}

// Guests first (their mappings are the backends' to give back), then backends, then the workers that step them.
EmuHost::~EmuHost() {
  // Not those of another host that runs there, and because of which this one could not listen.
  if (guests_ != nullptr) {
    for (const char* file : {"/host.pid", "/host.json"}) ::unlink((options_.directory + file).c_str());
  }
  if (manager_ != nullptr) manager_->devices().clear();
  guests_.reset();
  stop_workers_ = true;
  for (auto& worker : workers_) worker->wake();
  for (auto& thread : threads_) thread.join();
  keys_.reset();
  if (xenstore_ != nullptr) xenstore_->stop();
  const auto usage = hypervisor_.usage();
  if (usage.mappings != 0 || usage.ports != 0) {
    log_line(fmt::format("bug: {} mappings and {} ports left at exit", usage.mappings, usage.ports));
  }
}

Status EmuHost::open_directory() {
  if (auto made = make_directory(options_.directory); !made) return made;
  return make_directory(options_.directory + "/stats");
}

// Before anything else of the directory is touched: a host that already runs there answers on this socket.
Status EmuHost::listen() {
  hypervisor::emu::GuestServerConfig config;
  config.socket_path = options_.directory + "/hypervisor.sock";
  config.pages_max = options_.guest_memory_mib * (1024 * 1024 / kPageSize);
  config.limits.grant_frames = options_.grant_frames;
  hypervisor::emu::GuestServerEvents events;
  events.on_guest_gone = [this](DomId domain) {
    if (manager_ != nullptr) manager_->frontend_gone(domain);
  };
  events.on_refused = log_line;
  auto server = hypervisor::emu::GuestServer::listen(hypervisor_, std::move(config), std::move(events));
  if (!server) return tl::unexpected(server.error());
  guests_ = std::move(*server);
  return {};
}

Status EmuHost::start_xenstore() {
  auto service = hypervisor::XenstoreService::start({options_.directory + "/xenstored", "", ""});
  if (!service) return tl::unexpected(service.error());
  xenstore_ = std::move(*service);
  auto keys = keystore::Client::connect(xenstore_->socket_path());
  if (!keys) return tl::unexpected(keys.error());
  keys_ = std::make_unique<keystore::Client>(std::move(*keys));
  return {};
}

// As a toolstack: the domain's home is dom0's, readable by the guest; devices get directories of their own owner.
Status EmuHost::introduce_guests() {
  for (std::uint16_t id = 1; id <= options_.guests; ++id) {
    if (auto introduced = xenstore_->introduce(DomId(id)); !introduced) return introduced;
    const std::string home = fmt::format("/local/domain/{}", id);
    const keystore::Permission reader{DomId(id), true, false};
    if (auto made = keys_->make_directory(home); !made) return made;
    if (auto allowed = keys_->set_permissions(home, kDom0, {&reader, 1}); !allowed) return allowed;
    if (auto named = keys_->write(home + "/name", fmt::format("xblk-guest-{}", id)); !named) return named;
  }
  return {};
}

Status EmuHost::start_workers() {
  std::vector<blkback::RingRunner<env::RealEnv::Waitable>*> runners;
  for (unsigned i = 0; i < options_.workers; ++i) {
    workers_.push_back(std::make_unique<blkback::Worker<env::RealEnv>>(env_));
    runners.push_back(workers_.back().get());
    threads_.emplace_back([this, worker = workers_.back().get()] { worker->run(stop_workers_); });
  }
  context_ = std::make_unique<blkback::DeviceContext<EmuPlatform>>(blkback::DeviceContext<EmuPlatform>{
      env_, dom0_, *keys_, std::move(runners), options_.directory + "/stats", log_line});
  return {};
}

Status EmuHost::start_backends() {
  manager_ = std::make_unique<blkback::Manager<EmuPlatform>>(*context_);
  return manager_->start();
}

Status EmuHost::restart_backends() {
  log_line("restarting the backend drivers");
  manager_->abandon();
  return start_backends();
}

Status EmuHost::write_description() {
  const char* locks = options_.grant_locks == hypervisor::GrantLocks::split ? "split" : "coarse";
  auto written = write_file(options_.directory + "/host.json",
                            fmt::format("{{\"pid\": {}, \"guests\": {}, \"workers\": {}, \"grant_locks\": \"{}\"}}\n",
                                        ::getpid(), options_.guests, options_.workers, locks));
  if (!written) return written;
  return write_file(options_.directory + "/host.pid", fmt::format("{}\n", ::getpid()));
}

Status EmuHost::run(int signal_fd) {
  enum : std::uint64_t { kSignal, kKeys, kGuests, kXenstored };
  env::RealEnv::WaitSet waits(env_);
  for (const auto& [fd, token] : {std::pair{signal_fd, kSignal},
                                  {keys_->fd(), kKeys},
                                  {guests_->fd(), kGuests},
                                  {xenstore_->failure_fd(), kXenstored}}) {
    if (auto added = waits.add(fd, token); !added) return added;
  }
  std::vector<std::uint64_t> ready;
  for (;;) {
    ready.clear();
    waits.wait(env_.now() + kLookAround, ready);
    for (const std::uint64_t token : ready) {
      if (token == kSignal) {
        if (!is_restart(signal_fd)) return {};
        if (auto restarted = restart_backends(); !restarted) return restarted;
      }
      if (token == kGuests) guests_->handle();
    }
    if (const auto failure = xenstore_->failure()) return fail(EIO, *failure);
    manager_->turn();
  }
}

}  // namespace xblk::apps
