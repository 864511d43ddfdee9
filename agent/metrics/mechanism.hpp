// What the block path did for each I/O: the explanation that stands beside the number.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "agent/host/host.hpp"
#include "agent/metrics/snapshot.hpp"

namespace xblk::metrics {

// TLB shootdowns of the machine while no experiment runs, per second.
using IdleRate = std::optional<double>;
Result<IdleRate> measure_idle_tlb_rate(host::Host& host, Nanos duration);

// All values are per I/O that fio's callers see (front counter `ios`), summed over guests, unless named otherwise.
// Absent: the backend's statistics were not readable, the kernel has no such counter, or the divisor is 0.
struct Mechanism {
  std::uint64_t ios = 0;
  std::optional<double> maps_per_io;
  std::optional<double> unmaps_per_io;
  std::optional<double> unmap_calls_per_io;  // batches of unmaps: one TLB flush each on Xen
  std::optional<double> copies_per_io;
  std::optional<double> copied_bytes_per_io;   // grant copies of the backend
  double front_copied_bytes_per_io = 0;        // bounce copies of the frontend
  std::optional<double> notifications_per_io;  // both ends
  double front_notifications_per_io = 0;
  std::optional<double> back_notifications_per_io;
  std::optional<double> persistent_hit_ratio;  // of the segments looked up in the backend's cache
  std::optional<double> lookup_steps_per_io;   // entries of that cache looked at
  std::optional<double> lock_wait_ns_per_io;   // pool and grant locks, both ends
  double front_cpu_ns_per_io = 0;              // the whole fio process
  std::optional<double> back_cpu_ns_per_io;
  double requests_per_io = 0;                // ring requests
  double ring_full_stalls_per_io = 0;        // submissions that waited for a slot or a grant
  std::optional<double> requests_per_batch;  // consumed by the backend in one dispatch round
  std::optional<double> deferrals_per_io;    // rounds that left requests waiting behind those in flight (seed 001)

  // System-wide, the idle rate subtracted. Clamped: the machine had fewer than when idle, so 0 stands for "not
  // distinguishable from idle".
  std::optional<double> tlb_ipis_per_io;
  std::optional<double> tlb_ipis_per_unmap;
  bool tlb_ipis_clamped = false;
  bool tlb_idle_rate_known = false;

  // fio's own count is off by more than 1%: the two windows do not cover the same I/Os.
  std::optional<double> fio_ios_ratio;  // fio's / ours
  bool ios_mismatch = false;
};

struct Observed {
  std::span<const Window> guests;
  IdleRate idle_tlb_rate;
  std::optional<std::uint64_t> fio_ios;  // total_ios of all guests, all directions
};

Result<Mechanism> explain(const Observed& observed);

// Keys are the member names; an absent value is null.
nlohmann::json to_json(const Mechanism& mechanism);

}  // namespace xblk::metrics
