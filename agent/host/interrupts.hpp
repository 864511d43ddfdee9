// Kernel counters that tell what a run did to the CPUs.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <sys/types.h>

#include "drivers/base/result.hpp"
#include "drivers/base/units.hpp"

namespace xblk::host {

// /proc/interrupts: one row per interrupt, one column per online CPU. The rows of interest are inter-processor:
// TLB (shootdowns), RES (rescheduling), CAL (function calls; newer kernels count some shootdowns here only).
struct Interrupts {
  std::vector<std::string> cpus;                           // "CPU0", ... ; offline CPUs have no column
  std::map<std::string, std::vector<std::uint64_t>> rows;  // by name without the colon

  // System-wide sum, absent when the kernel has no such row (no SMP, or another architecture).
  [[nodiscard]] std::optional<std::uint64_t> sum(const std::string& row) const;
};

Result<Interrupts> parse_interrupts(std::string_view text);
Result<Interrupts> read_interrupts(const std::filesystem::path& file = "/proc/interrupts");

// CPU time of the live threads of a process (first field of schedstat). A thread that has ended is not in it.
Result<Nanos> process_cpu_time(pid_t pid, const std::filesystem::path& proc = "/proc");

}  // namespace xblk::host
