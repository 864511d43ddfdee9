// How many TLB-shootdown interrupts does one grant unmap cost here? Two pinned threads of one process, no guest: one
// maps and unmaps granted pages, the other spins or sleeps, in alternating rounds; the kernel's own count is the
// result.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "drivers/base/result.hpp"
#include "drivers/base/units.hpp"

namespace xblk::hypervisor {

// Sum over CPUs of the TLB row of /proc/interrupts; nothing when the architecture has no such row.
[[nodiscard]] std::optional<std::uint64_t> tlb_shootdowns(std::string_view proc_interrupts);

struct ShootdownPhase {
  std::uint64_t unmaps = 0;
  std::uint64_t interrupts = 0;  // system-wide: other processes' shootdowns are in it
  Nanos elapsed{};               // of the map-and-unmap loop
  Nanos spinner_cpu{};           // CPU time that the second thread got meanwhile

  [[nodiscard]] double interrupts_per_unmap() const;
  [[nodiscard]] double ns_per_unmap() const;  // one map and one unmap
};

struct ShootdownHost {
  int cpus_allowed = 0;
  bool broadcast_invalidation = false;  // INVLPGB: other CPUs' TLBs are flushed without an interrupt
  bool paravirtual_flush = false;       // KVM_FEATURE_PV_TLB_FLUSH: a vCPU that is not running gets no interrupt
};
[[nodiscard]] ShootdownHost this_host();

struct ShootdownResult {
  ShootdownHost host;
  ShootdownPhase alone;        // the second thread sleeps
  ShootdownPhase with_second;  // the second thread spins on another CPU
};

// `rounds` of each phase, alternating, of `unmaps` each. ENOTSUP: one CPU, or no count in /proc/interrupts.
Result<ShootdownResult> measure_shootdowns(std::uint32_t rounds, std::uint32_t unmaps);

// Below this many interrupts per unmap the mechanism is not visible, and explain() says what hides it.
inline constexpr double kExpectedInterruptsPerUnmap = 0.5;
[[nodiscard]] std::vector<std::string> explain(const ShootdownResult& result);

}  // namespace xblk::hypervisor
