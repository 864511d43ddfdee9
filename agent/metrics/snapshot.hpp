// Snapshots that the fio engine writes at start, at the end of ramp_time and at the end, so that counters and fio's
// numbers cover the same window. JSON lines, one snapshot each:
//
//   {"phase":"start|ramp_end|end", "monotonic_ns":N, "process_cpu_ns":N, "tlb_ipis":N|null,
//    "front":{"generation":G, "queues":[{"counters":{name:value,..}, "gauges":{..}}, ..]}, "back":{..}|null}
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "drivers/base/result.hpp"
#include "drivers/base/statistics_file.hpp"
#include "drivers/base/units.hpp"

namespace xblk::metrics {

enum class Phase { kStart, kRampEnd, kEnd };

struct Snapshot {
  Phase phase = Phase::kStart;
  Instant taken;                          // CLOCK_MONOTONIC: comparable between processes of one host
  Nanos process_cpu;                      // of the whole fio process, its load generator included
  std::optional<std::uint64_t> tlb_ipis;  // TLB row of /proc/interrupts: system-wide
  StatisticsSample front;
  std::optional<StatisticsSample> back;
};

// What one guest did between the end of its ramp (its start when there is none) and its end.
struct Window {
  Snapshot begin;
  Snapshot end;
};

// Errors name file and line. Counters this build knows must all be there; others are passed over.
Result<std::vector<Snapshot>> parse_snapshots(std::string_view text, const std::string& file);
Result<Window> window_of(const std::vector<Snapshot>& snapshots, const std::string& file);
Result<Window> read_window(const std::filesystem::path& file);

}  // namespace xblk::metrics
