#include "drivers/scenarios/emu_rig.hpp"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "drivers/base/check.hpp"

namespace xblk::scenarios {
namespace {

constexpr const char* kDevid = "51712";

// Runs the host with its stdout on `ready_fd` and its log in the directory. Only async-signal-safe calls after fork.
pid_t spawn_host(const std::vector<std::string>& arguments, const std::string& log, int ready_fd,
                 std::uint64_t descriptors_max) {
  std::vector<char*> argv;
  for (const auto& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  const pid_t pid = ::fork();
  if (pid != 0) return pid;
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  // Hard and soft: the host raises the soft one as far as it can.
  const rlimit files{descriptors_max, descriptors_max};
  if (descriptors_max != 0) ::setrlimit(RLIMIT_NOFILE, &files);
  const int log_fd = ::open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0644);
  ::dup2(log_fd, STDERR_FILENO);
  ::dup2(ready_fd, STDOUT_FILENO);
  ::execv(argv[0], argv.data());
  ::_exit(127);
}

}  // namespace

EmuRig::EmuRig(const EmuHostSetup& setup) {
  char name[] = "/tmp/xblk-rig-XXXXXX";
  XBLK_CHECK(::mkdtemp(name) != nullptr, "a temporary directory for the test");
  directory_ = name;
  int ready[2];
  XBLK_CHECK(::pipe2(ready, O_CLOEXEC) == 0, "a pipe for the test");
  std::vector<std::string> arguments = {std::string(XBLK_BIN_DIR) + "/xblk-emu-host",
                                        "--dir",
                                        directory_,
                                        "--guests",
                                        std::to_string(setup.guests),
                                        "--workers",
                                        std::to_string(setup.workers),
                                        "--die-with-parent"};
  for (const auto& [policy, value] : setup.policies) arguments.insert(arguments.end(), {"--" + policy, value});
  arguments.insert(arguments.end(), setup.options.begin(), setup.options.end());
  pid_ = spawn_host(arguments, directory_ + "/host.log", ready[1], setup.descriptors_max);
  ::close(ready[1]);
  char answer[16] = {};
  const bool up = ::read(ready[0], answer, sizeof answer - 1) > 0 && std::string(answer) == "ready\n";
  ::close(ready[0]);
  if (!up) fmt::print(stderr, "{}\n", log());
  XBLK_CHECK(up, "the host program starts (its log stands above)");
  auto keys = keystore::Client::connect(directory_ + "/xenstored/socket");
  XBLK_CHECK(keys.has_value(), "dom0 reaches xenstored");
  dom0_ = std::make_unique<keystore::Client>(std::move(*keys));
}

EmuRig::~EmuRig() {
  if (pid_ > 0) stop();
  std::filesystem::remove_all(directory_);
}

int EmuRig::stop() {
  int status = 0;
  ::kill(pid_, SIGTERM);
  ::waitpid(pid_, &status, 0);
  pid_ = -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

void EmuRig::kill_host() {
  ::kill(pid_, SIGKILL);
  ::waitpid(pid_, nullptr, 0);
  pid_ = -1;
}

void EmuRig::restart_backends() {
  ::kill(pid_, SIGUSR1);
}

std::size_t EmuRig::host_descriptors() const {
  const std::filesystem::directory_iterator open(fmt::format("/proc/{}/fd", pid_));
  return static_cast<std::size_t>(std::distance(begin(open), end(open)));
}

std::size_t EmuRig::mapped_pieces(DomId guest) const {
  std::ifstream maps(fmt::format("/proc/{}/maps", pid_));
  const std::string memory = fmt::format("/memfd:xblk-guest-{} ", guest.value());
  std::size_t pieces = 0;
  for (std::string line; std::getline(maps, line);) pieces += line.find(memory) != std::string::npos ? 1 : 0;
  return pieces;
}

std::string EmuRig::frontend_path(DomId guest) const {
  return fmt::format("/local/domain/{}/device/vbd/{}", guest.value(), kDevid);
}
std::string EmuRig::backend_path(DomId guest) const {
  return fmt::format("/local/domain/0/backend/xblk/{}/{}", guest.value(), kDevid);
}
std::string EmuRig::backend_statistics(DomId guest) const {
  return fmt::format("{}/stats/vbd-{}-{}.back", directory_, guest.value(), kDevid);
}

std::string EmuRig::log() const {
  std::ostringstream text;
  text << std::ifstream(directory_ + "/host.log").rdbuf();
  return text.str();
}

void EmuRig::attach(DomId guest, const EmuVbd& vbd) {
  const std::string front = frontend_path(guest);
  const std::string back = backend_path(guest);
  const auto written = dom0_->transaction([&](keystore::Client& keys) -> Status {
    const keystore::Permission reads_front{kDom0, true, false};
    const keystore::Permission reads_back{guest, true, false};
    for (const auto& made : {keys.make_directory(front), keys.set_permissions(front, guest, {&reads_front, 1}),
                             keys.make_directory(back), keys.set_permissions(back, kDom0, {&reads_back, 1})}) {
      if (!made) return made;
    }
    const std::vector<std::pair<std::string, std::string>> entries = {
        {front + "/backend", back},
        {front + "/backend-id", "0"},
        {front + "/virtual-device", kDevid},
        {front + "/state", "1"},
        {back + "/frontend", front},
        {back + "/frontend-id", std::to_string(guest.value())},
        {back + "/online", "1"},
        {back + "/params", vbd.store},
        {back + "/mode", "w"},
        {back + "/state", "1"}};
    for (const auto& [key, value] : entries) {
      if (auto done = keys.write(key, value); !done) return done;
      const bool front_key = key.starts_with(front);
      const auto& reader = front_key ? reads_front : reads_back;
      if (auto done = keys.set_permissions(key, front_key ? guest : kDom0, {&reader, 1}); !done) return done;
    }
    // With the rest, so that the backend's first offer follows them.
    return write_policies(keys, guest, vbd);
  });
  XBLK_CHECK(written.has_value(), "dom0 may write everything");
}

void EmuRig::set_policies(DomId guest, const EmuVbd& vbd) {
  XBLK_CHECK(write_policies(*dom0_, guest, vbd).has_value(), "dom0 may write everything");
}

Status EmuRig::write_policies(keystore::Client& keys, DomId guest, const EmuVbd& vbd) const {
  for (const auto& [directory, policies] :
       {std::pair{backend_path(guest), vbd.back_policy}, {frontend_path(guest), vbd.front_policy}}) {
    for (const auto& [name, value] : policies) {
      if (auto done = keys.write(directory + "/xblk-policy/" + name, value); !done) return done;
    }
  }
  return {};
}

void EmuRig::ask_for_reconnect(DomId guest) {
  XBLK_CHECK(dom0_->write(frontend_path(guest) + "/xblk-policy/reconnect", std::to_string(++reconnects_)).has_value(),
             "dom0 may write everything");
}

void EmuRig::set_store(DomId guest, const std::string& store) {
  XBLK_CHECK(dom0_->write(backend_path(guest) + "/params", store).has_value(), "dom0 may write everything");
}

fio_engine::DeviceOptions EmuRig::options(DomId guest) const {
  fio_engine::DeviceOptions options;
  options.hypervisor_socket = directory_ + "/hypervisor.sock";
  options.domid = guest;
  options.device = fmt::format("device/vbd/{}", kDevid);
  options.xenstore_socket = fmt::format("{}/xenstored/xenbus-{}", directory_, guest.value());
  options.statistics_path = fmt::format("{}/stats/vbd-{}-{}.front", directory_, guest.value(), kDevid);
  options.buffer_bytes = Bytes(16 << 20);
  options.connect_timeout = seconds(20);
  return options;
}

Result<std::unique_ptr<apps::EmuFrontend>> EmuRig::connect(DomId guest) {
  return apps::EmuFrontend::open(options(guest));
}

}  // namespace xblk::scenarios
