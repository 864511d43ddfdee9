// A Host whose time passes only in wait(), and whose processes do what a function says. For tests of the state machine.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "agent/host/host.hpp"

namespace xblk::host {

// What a fake process does: lives for `lifetime`, then ends with `exit`. `at_end` may write its result files.
struct FakeLife {
  Nanos lifetime = seconds(1);
  ExitStatus exit = {};
  std::string output = {};
  std::string error = {};
  std::function<void()> at_end = {};
};

class FakeHost final : public Host {
 public:
  using Behaviour = std::function<Result<FakeLife>(const ProcessSpec&)>;
  explicit FakeHost(Behaviour behaviour) : behaviour_(std::move(behaviour)) {}

  Instant now() override { return clock_; }
  std::int64_t unix_time_seconds() override { return 1'800'000'000 + clock_.ns() / 1'000'000'000; }
  std::uint64_t random_seed() override { return 42; }
  Result<std::unique_ptr<Process>> spawn(const ProcessSpec& spec) override;
  Wake wait(std::span<Process* const> processes, Instant deadline) override;
  SignalState signals() override { return seen_ = signals_; }
  Result<Interrupts> interrupts() override { return Interrupts{{"CPU0"}, {{"TLB", {0}}}}; }
  nlohmann::json fingerprint() override { return {{"fake", true}}; }

  // Signals arrive when the clock reaches `when`.
  void raise_at(Instant when, int signal) { pending_.push_back({when, signal}); }
  [[nodiscard]] const std::vector<ProcessSpec>& spawned() const { return spawned_; }

 private:
  class FakeProcess;
  struct Pending {
    Instant when;
    int signal;
  };
  [[nodiscard]] bool deliver_due();

  Behaviour behaviour_;
  Instant clock_{0};
  SignalState signals_;
  SignalState seen_;
  std::vector<Pending> pending_;
  std::vector<ProcessSpec> spawned_;
};

}  // namespace xblk::host
