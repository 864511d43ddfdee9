// XenstoredProcess: Debian's unmodified xenstored as a child process, with the shim preloaded.
#pragma once

#include <sys/types.h>

#include <string>

#include "drivers/base/result.hpp"
#include "drivers/base/unique_fd.hpp"

namespace xblk::hypervisor {

class XenstoredProcess {
 public:
  // The child dies with the *thread* that calls spawn() (PR_SET_PDEATHSIG), so that thread has to outlive it.
  // `control` is the shim's end of the control socket. Output goes to `directory`/xenstored.log.
  static Result<XenstoredProcess> spawn(const std::string& xenstored_path, const std::string& shim_path,
                                        const std::string& directory, UniqueFd control);

  XenstoredProcess(XenstoredProcess&& other) noexcept = default;
  XenstoredProcess& operator=(XenstoredProcess&& other) noexcept = default;
  ~XenstoredProcess();  // kill_and_reap()

  [[nodiscard]] pid_t pid() const { return pid_; }
  [[nodiscard]] int pidfd() const { return pidfd_.get(); }  // readable when the child has ended

  void kill();         // its end then shows at pidfd()
  std::string reap();  // after pidfd() became readable: how it ended, in words
  void kill_and_reap();

 private:
  XenstoredProcess(pid_t pid, UniqueFd pidfd) : pid_(pid), pidfd_(std::move(pidfd)) {}

  pid_t pid_;
  UniqueFd pidfd_;  // empty: reaped or moved from
};

// The last line that xenstored wrote, for error messages; empty when there is none.
std::string last_log_line(const std::string& directory);

}  // namespace xblk::hypervisor
