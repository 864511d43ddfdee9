// The port between the agent and the operating system: time, child processes, signals, facts about the machine.
// Virtual because the state machine of a run is tested against `fake/`; nothing here is on a hot path.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include <nlohmann/json.hpp>

#include "agent/host/interrupts.hpp"
#include "agent/host/process.hpp"
#include "agent/host/signals.hpp"
#include "drivers/base/result.hpp"
#include "drivers/base/units.hpp"

namespace xblk::host {

enum class Wake {
  kExited,    // at least one process ended since the last wait, or none is running any more
  kDeadline,  // the deadline passed first
  kSignal,    // the signal state has changed: look at signals()
};

class Host {
 public:
  virtual ~Host() = default;

  [[nodiscard]] virtual Instant now() = 0;                     // monotonic
  [[nodiscard]] virtual std::int64_t unix_time_seconds() = 0;  // for names and records only, never for durations
  [[nodiscard]] virtual std::uint64_t random_seed() = 0;

  // PR_SET_PDEATHSIG follows the *thread* that spawned: call it from a thread that lives as long as the run.
  virtual Result<std::unique_ptr<Process>> spawn(const ProcessSpec& spec) = 0;

  // Sleeps until a process of the list ends, a signal arrives or the deadline passes. An empty list just sleeps.
  virtual Wake wait(std::span<Process* const> processes, Instant deadline) = 0;

  [[nodiscard]] virtual SignalState signals() = 0;
  [[nodiscard]] virtual Result<Interrupts> interrupts() = 0;
  [[nodiscard]] virtual nlohmann::json fingerprint() = 0;
};

}  // namespace xblk::host
