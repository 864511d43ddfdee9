// The names of the mechanism figures: one table for the run that fills them, the reports, the help and the schema.
// A number says how fast; these say why.
#pragma once

#include <array>
#include <string_view>

namespace xblk::report {

struct MechanismInfo {
  std::string_view name;   // key in results.json
  std::string_view label;  // heading for people
  std::string_view unit;   // empty for pure counts per I/O
  std::string_view meaning;
};

// "I/O" is one fio I/O in the measured window (after ramp-up), not one ring request.
inline constexpr std::array kMechanisms = {
    MechanismInfo{"maps_per_io", "maps / I/O", "", "grant map operations of the backend"},
    MechanismInfo{"unmaps_per_io", "unmaps / I/O", "", "grant unmap operations of the backend"},
    MechanismInfo{"unmap_calls_per_io", "unmap calls / I/O", "",
                  "calls that unmap grants; each flushes TLBs once on Xen"},
    MechanismInfo{"copies_per_io", "copies / I/O", "", "grant copy operations of the backend"},
    MechanismInfo{"copied_bytes_per_io", "copied / I/O", "B", "bytes moved by grant copies of the backend"},
    MechanismInfo{"front_copied_bytes_per_io", "front copied / I/O", "B",
                  "bytes moved by the frontend's copies into and out of granted pages"},
    MechanismInfo{"requests_per_io", "requests / I/O", "", "ring requests that one I/O was split into"},
    MechanismInfo{"requests_per_batch", "requests / batch", "", "ring requests consumed per dispatch round"},
    MechanismInfo{"deferrals_per_io", "deferrals / I/O", "",
                  "dispatch rounds that left requests waiting behind those in flight (seed 001)"},
    MechanismInfo{"notifications_per_io", "notifications / I/O", "", "event-channel notifications sent by both ends"},
    MechanismInfo{"front_notifications_per_io", "front notifications / I/O", "", "of these: sent by the frontend"},
    MechanismInfo{"back_notifications_per_io", "back notifications / I/O", "", "of these: sent by the backend"},
    MechanismInfo{"persistent_hit_ratio", "persistent hits", "ratio",
                  "segments served from the persistent-grant cache, of all segments"},
    MechanismInfo{"lookup_steps_per_io", "lookup steps / I/O", "",
                  "entries of the persistent-grant cache looked at to find grants"},
    MechanismInfo{"lock_wait_ns_per_io", "lock wait / I/O", "ns", "waiting for pool and grant-table locks, both ends"},
    MechanismInfo{"front_cpu_ns_per_io", "front CPU / I/O", "ns", "CPU time of the guest's process"},
    MechanismInfo{"back_cpu_ns_per_io", "back CPU / I/O", "ns", "CPU time of the backend's workers"},
    MechanismInfo{"ring_full_stalls_per_io", "ring-full stalls / I/O", "",
                  "submissions that waited for a free ring slot or grant"},
    MechanismInfo{"tlb_ipis_per_unmap", "TLB IPIs / unmap", "",
                  "TLB shootdown interrupts; system-wide, idle baseline subtracted"},
    MechanismInfo{"tlb_ipis_per_io", "TLB IPIs / I/O", "",
                  "TLB shootdown interrupts; system-wide, idle baseline subtracted"},
};

// nullptr for a name that this version does not know (results of a newer one keep it and show the bare name).
constexpr const MechanismInfo* find_mechanism(std::string_view name) {
  for (const MechanismInfo& info : kMechanisms) {
    if (info.name == name) return &info;
  }
  return nullptr;
}

}  // namespace xblk::report
