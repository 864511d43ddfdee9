#include "drivers/hypervisor/real_bell.hpp"

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/uio.h>
#include <unistd.h>

#include <array>
#include <cstdint>

#include "drivers/base/check.hpp"

namespace xblk::hypervisor {

using Bell = EventBell<env::RealEnv>;

Result<Bell> Bell::create() {
  Bell bell;
  bell.ring_fd_ = bell.wait_fd_ = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (bell.ring_fd_ < 0) return fail_errno("create an eventfd for an event channel (limit of open files?)");
  return bell;
}

Result<Bell> Bell::create_for_remote_receiver() {
  std::array<int, 2> ends{-1, -1};
  if (::pipe2(ends.data(), O_CLOEXEC | O_NONBLOCK) != 0) {
    return fail_errno("create a pipe for an event channel (limit of open files?)");
  }
  Bell bell;
  bell.wait_fd_ = ends[0];
  bell.ring_fd_ = ends[1];
  return bell;
}

Bell Bell::adopt_receiver(int fd) {
  Bell bell;
  bell.wait_fd_ = fd;
  return bell;
}

Bell Bell::adopt_sender(int fd) {
  Bell bell;
  bell.ring_fd_ = fd;
  return bell;
}

Bell::~EventBell() {
  if (epoll_ >= 0) ::close(epoll_);
  if (wait_fd_ >= 0) ::close(wait_fd_);
  if (ring_fd_ >= 0 && ring_fd_ != wait_fd_) ::close(ring_fd_);
}

void Bell::swap(EventBell& other) noexcept {
  std::swap(ring_fd_, other.ring_fd_);
  std::swap(wait_fd_, other.wait_fd_);
  std::swap(epoll_, other.epoll_);
}

void Bell::ring() {
  // Eight bytes, because an eventfd takes no other size. EAGAIN means saturated, that is: rung already.
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(ring_fd_, &one, sizeof one);
}

bool Bell::consume() {
  std::array<std::byte, 512> drained;
  iovec target{drained.data(), drained.size()};
  // A pipe's read end is an open file of our own, and kernels before 6.4 know no RWF_NOWAIT on pipes.
  const bool shared_file = wait_fd_ == ring_fd_;
  return shared_file ? ::preadv2(wait_fd_, &target, 1, -1, RWF_NOWAIT) > 0
                     : ::read(wait_fd_, drained.data(), drained.size()) > 0;
}

int Bell::waitable() {
  if (epoll_ < 0) {
    epoll_ = ::epoll_create1(EPOLL_CLOEXEC);
    XBLK_CHECK(epoll_ >= 0, "an event channel needs a descriptor to be awaited; raise the limit of open files");
    epoll_event event{};
    event.events = EPOLLIN;
    XBLK_CHECK(::epoll_ctl(epoll_, EPOLL_CTL_ADD, wait_fd_, &event) == 0, "eventfds and pipes can be polled");
  }
  return epoll_;
}

void Bell::mask() {
  set_interest(true);
}
void Bell::unmask() {
  set_interest(false);
}

void Bell::set_interest(bool masked) {
  epoll_event event{};
  if (!masked) event.events = EPOLLIN;
  ::epoll_ctl(waitable(), EPOLL_CTL_MOD, wait_fd_, &event);
}

}  // namespace xblk::hypervisor
