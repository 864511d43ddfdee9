#include "agent/host/linux/linux_process.hpp"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <map>

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/host/files.hpp"
#include "drivers/base/check.hpp"

extern char** environ;

namespace xblk::host {
namespace {

// What the child does between fork and exec, prepared beforehand: only async-signal-safe calls are allowed there.
struct Launch {
  std::string program;
  std::vector<char*> argv;
  std::vector<std::string> environment_text;
  std::vector<char*> environment;
  const char* directory = nullptr;
  int output = -1;
  int error = -1;
  int failure = -1;  // CLOEXEC pipe: errno of a failed exec; closed by a successful one
  pid_t parent = 0;
  bool outlives_us = false;
};

Result<std::string> find_program(const std::string& name) {
  if (name.find('/') != std::string::npos) return name;
  const char* path = std::getenv("PATH");
  std::string_view rest = path != nullptr ? path : "/usr/bin:/bin";
  while (!rest.empty()) {
    const auto end = std::min(rest.find(':'), rest.size());
    std::string candidate = fmt::format("{}/{}", rest.substr(0, end), name);
    if (::access(candidate.c_str(), X_OK) == 0) return candidate;
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  return fail(ENOENT, fmt::format("{}: not found in PATH; install it or give its full path", name));
}

std::vector<std::string> merged_environment(const ProcessSpec& spec) {
  std::map<std::string, std::string> merged;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    const auto at = text.find('=');
    if (at != std::string_view::npos) merged.emplace(text.substr(0, at), text.substr(at + 1));
  }
  for (const auto& [key, value] : spec.environment) merged.insert_or_assign(key, value);
  std::vector<std::string> lines;
  for (const auto& [key, value] : merged) lines.push_back(key + "=" + value);
  return lines;
}

[[noreturn]] void report_and_exit(int pipe) {
  const int code = errno;
  const ssize_t ignored = ::write(pipe, &code, sizeof code);
  static_cast<void>(ignored);
  ::_exit(127);
}

[[noreturn]] void run_child(const Launch& launch) {
  if (launch.outlives_us) {
    ::setsid();  // nor does the terminal's hang-up end it
  } else {
    ::setpgid(0, 0);
    // We may be killed with SIGKILL: the kernel then kills the child for us. The parent may be gone before this call.
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != launch.parent) ::_exit(127);
  }
  sigset_t none;
  sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);  // a blocked SIGINT would survive exec and fio could not be stopped
  ::signal(SIGPIPE, SIG_DFL);
  if (launch.directory != nullptr && ::chdir(launch.directory) != 0) report_and_exit(launch.failure);
  const int null = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  ::dup2(null, STDIN_FILENO);
  ::dup2(launch.output >= 0 ? launch.output : null, STDOUT_FILENO);
  ::dup2(launch.error >= 0 ? launch.error : null, STDERR_FILENO);
  ::syscall(SYS_close_range, 3U, ~0U, 4U /* CLOSE_RANGE_CLOEXEC */);
  ::execve(launch.program.c_str(), launch.argv.data(), launch.environment.data());
  report_and_exit(launch.failure);
}

Result<std::pair<UniqueFd, UniqueFd>> make_pipe() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return fail_errno("pipe");
  return std::pair{UniqueFd(ends[0]), UniqueFd(ends[1])};
}

// The end the child writes to; ours, when captured, goes to `pipe`.
Result<UniqueFd> open_output(const Output& output, UniqueFd& pipe, std::size_t& limit) {
  if (const auto* file = std::get_if<ToFile>(&output)) {
    UniqueFd fd(::open(file->path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
    if (!fd) return tl::unexpected(storage_error(errno, "create", file->path));
    return fd;
  }
  if (const auto* capture = std::get_if<Capture>(&output)) {
    auto ends = make_pipe();
    if (!ends) return tl::unexpected(ends.error());
    ::fcntl(ends->first.get(), F_SETFL, O_NONBLOCK);
    pipe = std::move(ends->first);
    limit = capture->limit;
    return std::move(ends->second);
  }
  return UniqueFd();
}

std::vector<char*> pointers(std::vector<std::string>& text) {
  std::vector<char*> result;
  for (auto& line : text) result.push_back(line.data());
  result.push_back(nullptr);
  return result;
}

}  // namespace

Result<std::unique_ptr<LinuxProcess>> LinuxProcess::spawn(const ProcessSpec& spec) {
  XBLK_CHECK(!spec.argv.empty(), "a process needs a program");
  auto process = std::unique_ptr<LinuxProcess>(new LinuxProcess());
  Launch launch;
  auto program = find_program(spec.argv[0]);
  if (!program) return tl::unexpected(program.error());
  launch.program = *program;
  auto arguments = spec.argv;
  launch.argv = pointers(arguments);
  launch.environment_text = merged_environment(spec);
  launch.environment = pointers(launch.environment_text);
  launch.directory = spec.directory.empty() ? nullptr : spec.directory.c_str();
  launch.parent = ::getpid();
  launch.outlives_us = process->outlives_us_ = spec.outlives_us;

  auto output = open_output(spec.standard_output, process->output_.pipe, process->output_.limit);
  if (!output) return tl::unexpected(output.error());
  auto error = open_output(spec.standard_error, process->error_.pipe, process->error_.limit);
  if (!error) return tl::unexpected(error.error());
  auto failure = make_pipe();
  if (!failure) return tl::unexpected(failure.error());
  launch.output = output->get();
  launch.error = error->get();
  launch.failure = failure->second.get();

  const pid_t pid = ::fork();
  if (pid < 0) return fail_errno(fmt::format("cannot start {}", launch.program));
  if (pid == 0) run_child(launch);
  if (!spec.outlives_us) ::setpgid(pid, pid);  // both sides set it, so that it holds whoever runs first
  process->pid_ = pid;
  process->pidfd_ = UniqueFd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0U)));
  XBLK_CHECK(process->pidfd_, "pidfd_open of an own unreaped child");

  failure->second.reset();
  int code = 0;
  ssize_t got = 0;
  do got = ::read(failure->first.get(), &code, sizeof code);
  while (got < 0 && errno == EINTR);
  if (got == static_cast<ssize_t>(sizeof code)) {
    errno = code;
    return fail_errno(fmt::format("cannot start {}", launch.program));
  }
  return process;
}

LinuxProcess::~LinuxProcess() {
  if (pid_ < 0 || status_ || outlives_us_) return;
  ::kill(-pid_, SIGKILL);
  wait_for(Nanos(-1));
}

void LinuxProcess::Stream::drain() {
  char chunk[65536];
  while (pipe) {
    const ssize_t n = ::read(pipe.get(), chunk, sizeof chunk);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) return;
    if (n <= 0) {
      pipe.reset();
      return;
    }
    const std::size_t kept = std::min(static_cast<std::size_t>(n), limit - text.size());
    text.append(chunk, kept);
    truncated = truncated || kept < static_cast<std::size_t>(n);
  }
}

void LinuxProcess::drain() {
  output_.drain();
  error_.drain();
}

std::optional<ExitStatus> LinuxProcess::status() {
  drain();
  if (!status_) {
    pollfd end{pidfd_.get(), POLLIN, 0};
    if (::poll(&end, 1, 0) == 1) reap();
  }
  return status_;
}

void LinuxProcess::reap() {
  // The zombie still holds the group's number, so this cannot hit a stranger; whatever the leader left behind ends.
  ::kill(-pid_, SIGKILL);
  siginfo_t info{};
  while (::waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED) != 0 && errno == EINTR) {
  }
  ExitStatus status;
  if (info.si_code == CLD_EXITED) {
    status.exit_code = info.si_status;
  } else {
    status.signal = info.si_status;
  }
  status.ended_by_us = terminated_;
  status_ = status;
  drain();
}

bool LinuxProcess::wait_for(Nanos timeout) {
  const auto now_ns = [] {
    timespec t{};
    ::clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1'000'000'000LL + t.tv_nsec;
  };
  const std::int64_t deadline = now_ns() + timeout.value();
  while (!status()) {
    const std::int64_t left = deadline - now_ns();
    if (timeout.value() >= 0 && left <= 0) return false;
    pollfd fds[3] = {{end_fd(), POLLIN, 0}, {output_fd(), POLLIN, 0}, {error_fd(), POLLIN, 0}};
    ::poll(fds, 3, timeout.value() < 0 ? -1 : static_cast<int>(left / 1'000'000 + 1));
  }
  return true;
}

ExitStatus LinuxProcess::terminate(Nanos grace) {
  if (status()) return *status_;
  terminated_ = true;
  for (const int signal : {SIGINT, SIGTERM}) {
    ::kill(-pid_, signal);
    if (wait_for(grace)) return *status_;
  }
  ::kill(-pid_, SIGKILL);
  // A task in uninterruptible sleep ignores even SIGKILL: do not hang with it.
  if (wait_for(std::max(grace, seconds(5)))) return *status_;
  return ExitStatus{.exit_code = 0, .signal = SIGKILL, .ended_by_us = true};
}

}  // namespace xblk::host
