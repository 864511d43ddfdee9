#include "drivers/hypervisor/xenstored/xenstored_process.hpp"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <array>
#include <fstream>

#include "drivers/base/check.hpp"
#include "drivers/hypervisor/xenstored/shim_protocol.hpp"

namespace xblk::hypervisor {
namespace {

std::string log_path(const std::string& directory) {
  return directory + "/xenstored.log";
}

struct Exec {
  const char* program;
  const char* const* arguments;
  const char* const* environment;
  int log;
  int control;
  pid_t parent;
};

// Between fork and exec in a process with threads: system calls only.
[[noreturn]] void exec_child(const Exec& exec) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != exec.parent) ::_exit(1);  // the host died before the line above
  ::setsid();                                  // a Ctrl-C at the host's terminal is the host's to handle
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  ::syscall(SYS_close_range, 3U, ~0U, 4U /* CLOSE_RANGE_CLOEXEC */);
  ::dup2(exec.log, STDOUT_FILENO);
  ::dup2(exec.log, STDERR_FILENO);
  ::fcntl(exec.control, F_SETFD, 0);
  ::execve(exec.program, const_cast<char* const*>(exec.arguments), const_cast<char* const*>(exec.environment));
  constexpr char kMessage[] = "exec of xenstored failed\n";
  if (::write(STDERR_FILENO, kMessage, sizeof kMessage - 1) < 0) ::_exit(126);
  ::_exit(127);
}

Status require_file(const std::string& path, int mode, const std::string& advice) {
  if (::access(path.c_str(), mode) != 0) return fail_errno("xenstored: " + path + " (" + advice + ")");
  return {};
}

}  // namespace

Result<XenstoredProcess> XenstoredProcess::spawn(const std::string& xenstored_path, const std::string& shim_path,
                                                 const std::string& directory, UniqueFd control) {
  // The dynamic loader only warns about a missing preload and would start a daemon that looks for a real Xen.
  Status found = require_file(shim_path, R_OK, "the shim, built and installed with xblk");
  if (found) found = require_file(xenstored_path, X_OK, "install xen-utils-4.17");
  if (!found) return tl::unexpected(found.error());
  UniqueFd log(::open(log_path(directory).c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0600));
  if (!log) return fail_errno("xenstored: " + log_path(directory));

  // A fresh environment: the host's own may hold a sanitizer's preload or point at another xenstore.
  const std::string preload = "LD_PRELOAD=" + shim_path;
  const std::string run_directory = "XENSTORED_RUNDIR=" + directory;
  const std::string control_number = std::string(kShimControlVariable) + "=" + std::to_string(control.get());
  const std::array environment{preload.c_str(), run_directory.c_str(), control_number.c_str(),
                               static_cast<const char*>(nullptr)};
  const std::array arguments{"xenstored", "-N", static_cast<const char*>(nullptr)};
  const Exec exec{xenstored_path.c_str(), arguments.data(), environment.data(), log.get(), control.get(), ::getpid()};

  const pid_t pid = ::fork();
  if (pid < 0) return fail_errno("fork");
  if (pid == 0) exec_child(exec);
  UniqueFd pidfd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0U)));
  if (!pidfd) {
    const auto failure = fail_errno("pidfd_open");
    ::kill(pid, SIGKILL);
    ::waitpid(pid, nullptr, 0);
    return failure;
  }
  return XenstoredProcess(pid, std::move(pidfd));
}

XenstoredProcess::~XenstoredProcess() {
  kill_and_reap();
}

std::string XenstoredProcess::reap() {
  int status = 0;
  XBLK_CHECK(::waitpid(pid_, &status, 0) == pid_, "the child is ours and not yet reaped");
  pidfd_.reset();
  if (WIFSIGNALED(status)) return "was killed by signal " + std::to_string(WTERMSIG(status));
  return "exited with status " + std::to_string(WEXITSTATUS(status));
}

// SIGKILL: nothing to save, the store lives in its memory.
void XenstoredProcess::kill() {
  if (pidfd_) ::kill(pid_, SIGKILL);
}

void XenstoredProcess::kill_and_reap() {
  if (!pidfd_) return;
  kill();
  reap();
}

std::string last_log_line(const std::string& directory) {
  std::ifstream log(log_path(directory));
  std::string line;
  std::string last;
  while (std::getline(log, line)) {
    if (!line.empty()) last = line;
  }
  return last;
}

}  // namespace xblk::hypervisor
