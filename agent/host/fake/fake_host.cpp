#include "agent/host/fake/fake_host.hpp"

#include <algorithm>
#include <csignal>

namespace xblk::host {

class FakeHost::FakeProcess final : public Process {
 public:
  FakeProcess(FakeHost& host, FakeLife life, pid_t pid)
      : host_(host), life_(std::move(life)), pid_(pid), ends_(host.clock_ + life_.lifetime) {}

  pid_t pid() const override { return pid_; }
  std::optional<ExitStatus> status() override {
    if (!status_ && host_.clock_ >= ends_) {
      if (life_.at_end) life_.at_end();
      status_ = life_.exit;
    }
    return status_;
  }
  ExitStatus terminate(Nanos) override {
    if (status()) return *status_;
    // As fio does: SIGINT makes it end with 128.
    status_ = ExitStatus{.exit_code = 128, .signal = 0, .ended_by_us = true};
    return *status_;
  }
  const std::string& captured_output() const override { return life_.output; }
  const std::string& captured_error() const override { return life_.error; }
  bool capture_truncated() const override { return false; }

  [[nodiscard]] bool running() const { return !status_; }
  [[nodiscard]] Instant ends() const { return ends_; }

 private:
  FakeHost& host_;
  FakeLife life_;
  pid_t pid_;
  Instant ends_;
  std::optional<ExitStatus> status_;
};

Result<std::unique_ptr<Process>> FakeHost::spawn(const ProcessSpec& spec) {
  spawned_.push_back(spec);
  auto life = behaviour_(spec);
  if (!life) return tl::unexpected(life.error());
  return std::unique_ptr<Process>(
      std::make_unique<FakeProcess>(*this, *std::move(life), static_cast<pid_t>(spawned_.size())));
}

bool FakeHost::deliver_due() {
  for (const Pending& pending : pending_) {
    if (pending.when > clock_) continue;
    signals_.stage = std::min(signals_.stage + 1, 2);
    signals_.signal = pending.signal;
  }
  std::erase_if(pending_, [this](const Pending& pending) { return pending.when <= clock_; });
  return signals_ != seen_;
}

Wake FakeHost::wait(std::span<Process* const> processes, Instant deadline) {
  Instant next = deadline;
  bool any_running = false;
  for (Process* process : processes) {
    const auto* fake = static_cast<FakeProcess*>(process);
    if (!fake->running()) continue;
    any_running = true;
    next = std::min(next, fake->ends());
  }
  if (!any_running && !processes.empty()) return Wake::kExited;
  for (const Pending& pending : pending_) next = std::min(next, pending.when);
  clock_ = std::max(clock_, next);
  if (deliver_due()) {
    seen_ = signals_;
    return Wake::kSignal;
  }
  bool exited = false;
  for (Process* process : processes) {
    auto* fake = static_cast<FakeProcess*>(process);
    exited = (fake->running() && fake->status().has_value()) || exited;
  }
  return exited ? Wake::kExited : Wake::kDeadline;
}

}  // namespace xblk::host
