#include "agent/run/emu_rig.hpp"

#include <cerrno>
#include <csignal>
#include <cstdlib>

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/host/files.hpp"

namespace xblk::run {
namespace {

namespace fs = std::filesystem;

fs::path temporary_root() {
  const char* root = std::getenv("TMPDIR");
  return root != nullptr && *root != '\0' ? root : "/tmp";
}

Result<fs::path> make_directory() {
  std::string name = (temporary_root() / fmt::format("{}XXXXXX", kHostDirectoryPrefix)).string();
  if (::mkdtemp(name.data()) == nullptr) return tl::unexpected(host::storage_error(errno, "create", name));
  return fs::path(name);
}

bool host_runs_in(const fs::path& directory) {
  const auto text = host::read_file(HostLayout{directory}.pid_file(), 64);
  if (!text) return false;
  const long pid = std::strtol(text->c_str(), nullptr, 10);
  return pid > 0 && (::kill(static_cast<pid_t>(pid), 0) == 0 || errno == EPERM);
}

bool run_lives(const fs::path& directory) {
  const auto lock = host::lock_directory(directory);
  return !lock && lock.error().code == EBUSY;
}

bool is_own(const fs::path& directory) {
  struct stat facts {};
  return ::lstat(directory.c_str(), &facts) == 0 && S_ISDIR(facts.st_mode) && facts.st_uid == ::geteuid();
}

}  // namespace

EmuRig::EmuRig(host::Host& host, Programs programs, fs::path log)
    : host_(host), programs_(std::move(programs)), log_(std::move(log)) {}

EmuRig::~EmuRig() {
  EmuRig::stop();
}

Status EmuRig::start(const RigSpec& spec) {
  stop();
  auto directory = make_directory();
  if (!directory) return tl::unexpected(directory.error());
  layout_ = {*directory};
  auto lock = host::lock_directory(*directory);
  if (!lock) return tl::unexpected(lock.error());
  lock_ = *std::move(lock);
  auto process = HostProcess::start(host_, {programs_.emu_host, layout_, log_, spec});
  if (!process) return tl::unexpected(process.error());
  process_.emplace(*std::move(process));
  auto client = keystore::Client::connect(layout_.xenstore_socket().string());
  if (!client) return tl::unexpected(client.error());
  keys_ = std::make_unique<toggle::KeystoreAccess>(*std::move(client));
  return {};
}

void EmuRig::stop() {
  keys_.reset();
  if (process_) process_->stop();
  process_.reset();
  std::error_code ignored;
  if (!layout_.directory.empty()) fs::remove_all(layout_.directory, ignored);
  layout_ = {};
  lock_.reset();
}

std::optional<std::string> EmuRig::failure() {
  if (!process_) return "the emulated host is not running";
  return process_->failure();
}

std::vector<fs::path> abandoned_host_directories() {
  std::vector<fs::path> found;
  std::error_code error;
  for (fs::directory_iterator it(temporary_root(), error), end; !error && it != end; it.increment(error)) {
    const fs::path& path = it->path();
    if (!path.filename().string().starts_with(kHostDirectoryPrefix)) continue;
    if (is_own(path) && !run_lives(path) && !host_runs_in(path)) found.push_back(path);
  }
  return found;
}

}  // namespace xblk::run
