// EventBell in real time, safe against the process at the other end.
//
// Two rules follow from "the other end may be hostile":
//  - O_NONBLOCK belongs to the open file, which a descriptor passed over a socket shares. A guest could clear it on a
//    shared eventfd, drain or saturate the counter, and so make the host's next read or write sleep for ever. So the
//    host reads eventfds with RWF_NOWAIT, and rings guests through pipes, whose two ends are two open files.
//  - A guest may ring without end, and an eventfd stays readable. So masking is the kernel's: the waitable is an epoll
//    instance with the descriptor inside, and mask() takes EPOLLIN away from it.
#pragma once

#include <utility>

#include "drivers/base/result.hpp"
#include "drivers/env/real/real_env.hpp"
#include "drivers/hypervisor/event_bell.hpp"

namespace xblk::hypervisor {

template <>
class EventBell<env::RealEnv> {
 public:
  // Rung and awaited through one eventfd. The ringing side may be another process.
  static Result<EventBell> create();
  // Rung here, awaited in another process. Both ends stay open here, so that ringing a dead guest is no SIGPIPE.
  static Result<EventBell> create_for_remote_receiver();
  // The ends that another process received; they own the descriptor.
  static EventBell adopt_receiver(int fd);
  static EventBell adopt_sender(int fd);

  EventBell(EventBell&& other) noexcept { swap(other); }
  EventBell& operator=(EventBell&& other) noexcept {
    swap(other);
    return *this;
  }
  ~EventBell();

  void ring();
  bool consume();
  void mask();
  void unmask();
  // Created at the first call, which must not race with itself: most ends in the host only ring.
  [[nodiscard]] int waitable();

  [[nodiscard]] int sender_fd() const { return ring_fd_; }
  [[nodiscard]] int receiver_fd() const { return wait_fd_; }

 private:
  EventBell() = default;
  void swap(EventBell& other) noexcept;
  void set_interest(bool masked);

  int ring_fd_ = -1;
  int wait_fd_ = -1;  // equal to ring_fd_ for an eventfd
  int epoll_ = -1;
};

}  // namespace xblk::hypervisor
