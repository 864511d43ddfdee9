// Snapshots of both ends' counters at the edges of what fio measures, so that counts and fio's numbers cover the same
// window. One JSON line each, appended to the file of the option xblk_snapshots:
//
//   {"phase":"start"|"ramp_end"|"end", "device":..., "domid":..., "monotonic_ns":..., "process_cpu_ns":...,
//    "tlb_ipis":N|null, "front":{"generation":N,"queues":[{"counters":{...},"gauges":{...}}]}, "back":{...}|null}
//
// tlb_ipis is the sum of the TLB row of /proc/interrupts: TLB-shootdown interrupts of the whole machine, null where the
// kernel counts none. back is null when this machine cannot read the backend's statistics file.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <optional>
#include <string>
#include <string_view>

#include "drivers/base/result.hpp"
#include "drivers/base/units.hpp"

namespace xblk::fio_engine {

enum class Phase : std::uint8_t { start, ramp_end, end };

struct SnapshotSource {
  std::string file;  // empty: no snapshots
  std::string device;
  DomId domid{};
  std::string front_statistics;
  std::string back_statistics;  // empty: not readable from here
};

Status append_snapshot(const SnapshotSource& source, Phase phase);

// The sum of the TLB row of a text in the format of /proc/interrupts.
std::optional<std::uint64_t> tlb_ipis(std::istream& interrupts);

}  // namespace xblk::fio_engine
