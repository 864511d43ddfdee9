#include "agent/host/signals.hpp"

#include <algorithm>
#include <csignal>
#include <utility>

#include <sys/signalfd.h>
#include <unistd.h>

namespace xblk::host {
namespace {

sigset_t watched() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGINT);
  sigaddset(&set, SIGTERM);
  struct sigaction hangup {};
  ::sigaction(SIGHUP, nullptr, &hangup);
  // A signal that is blocked reaches the signalfd even if it is ignored.
  if (hangup.sa_handler != SIG_IGN) sigaddset(&set, SIGHUP);
  return set;
}

}  // namespace

Result<SignalWatch> SignalWatch::create() {
  const sigset_t set = watched();
  if (const int error = pthread_sigmask(SIG_BLOCK, &set, nullptr); error != 0) {
    return fail(error, "cannot block SIGINT, SIGTERM and SIGHUP");
  }
  const int fd = ::signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
  if (fd < 0) return fail_errno("signalfd");
  return SignalWatch(fd);
}

SignalWatch::SignalWatch(SignalWatch&& other) noexcept : fd_(std::exchange(other.fd_, -1)), state_(other.state_) {}

SignalWatch::~SignalWatch() {
  if (fd_ < 0) return;
  ::close(fd_);
  const sigset_t set = watched();
  pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
}

SignalState SignalWatch::poll() {
  signalfd_siginfo info{};
  while (::read(fd_, &info, sizeof info) == static_cast<ssize_t>(sizeof info)) {
    state_.stage = std::min(state_.stage + 1, 2);
    state_.signal = static_cast<int>(info.ssi_signo);
  }
  return state_;
}

}  // namespace xblk::host
