#pragma once

#include <memory>

#include "agent/host/process.hpp"
#include "drivers/base/result.hpp"
#include "drivers/base/unique_fd.hpp"

namespace xblk::host {

class LinuxProcess final : public Process {
 public:
  static Result<std::unique_ptr<LinuxProcess>> spawn(const ProcessSpec& spec);
  ~LinuxProcess() override;
  LinuxProcess(const LinuxProcess&) = delete;
  LinuxProcess& operator=(const LinuxProcess&) = delete;

  [[nodiscard]] pid_t pid() const override { return pid_; }
  [[nodiscard]] std::optional<ExitStatus> status() override;
  ExitStatus terminate(Nanos grace) override;
  [[nodiscard]] const std::string& captured_output() const override { return output_.text; }
  [[nodiscard]] const std::string& captured_error() const override { return error_.text; }
  [[nodiscard]] bool capture_truncated() const override { return output_.truncated || error_.truncated; }

  // For poll(2): the process's end, and its pipes (-1 where there is none).
  [[nodiscard]] int end_fd() const { return status_ ? -1 : pidfd_.get(); }
  [[nodiscard]] int output_fd() const { return output_.pipe.get(); }
  [[nodiscard]] int error_fd() const { return error_.pipe.get(); }
  void drain();

 private:
  struct Stream {
    UniqueFd pipe;
    std::size_t limit = 0;
    std::string text;
    bool truncated = false;
    void drain();
  };

  LinuxProcess() = default;
  bool wait_for(Nanos timeout);
  void reap();

  pid_t pid_ = -1;
  UniqueFd pidfd_;
  Stream output_;
  Stream error_;
  bool terminated_ = false;
  bool outlives_us_ = false;
  std::optional<ExitStatus> status_;
};

}  // namespace xblk::host
