// Two-stage interruption: the first SIGINT, SIGTERM or SIGHUP asks to finish the point, restore and write; the second
// to stop now.
#pragma once

#include "drivers/base/result.hpp"

namespace xblk::host {

struct SignalState {
  int stage = 0;   // 0 none, 1 finish the point, 2 stop now; never more
  int signal = 0;  // the latest; the process then exits with 128 + signal

  friend bool operator==(const SignalState&, const SignalState&) = default;
};

// Blocks the signals and reads them from a signalfd: no handler, so no code runs at an arbitrary point. A SIGHUP that
// is ignored when it is created stays so: that is how nohup(1) says that the run is to outlive its terminal. Create it
// before any thread, which then inherits the mask. Children get the original mask back (linux/process.cpp).
class SignalWatch {
 public:
  static Result<SignalWatch> create();
  SignalWatch(SignalWatch&& other) noexcept;
  SignalWatch& operator=(SignalWatch&&) = delete;
  ~SignalWatch();

  [[nodiscard]] int fd() const { return fd_; }  // readable when a signal waits
  SignalState poll();                           // takes what waits; never blocks

 private:
  explicit SignalWatch(int fd) : fd_(fd) {}
  int fd_;
  SignalState state_;
};

}  // namespace xblk::host
