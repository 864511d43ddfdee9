#include "drivers/blkif/policy_presets.hpp"

#include "drivers/blkif/wire.hpp"

namespace xblk::blkif {
namespace {

constexpr std::uint32_t kOneRing = 32;  // slots of a 4 KiB ring

// What all drivers before polling, batching and copying have in common.
BackPolicy event_driven_back(Preset preset) {
  BackPolicy policy;
  policy.preset = preset;
  policy.data_path = DataPath::map;
  policy.unmap_batch = 1;
  policy.polling = Polling::event;
  policy.persistent_lookup = Lookup::tree;
  return policy;
}

// xen-blkback: max_queues is the number of vCPUs; 4 stands for it. max_persistent_grants, max_buffer_pages and the 60 s
// of persistent_grant_unused_seconds are its module parameters' defaults, and ours.
BackPolicy linux_back() {
  return event_driven_back(Preset::linux_6_x);
}

BackPolicy back_2011() {
  BackPolicy policy = event_driven_back(Preset::seed_2011);
  policy.persistent = false;
  policy.queues = 1;
  policy.ring_page_order = 0;
  policy.indirect_segments = 0;
  policy.pools = Pools::per_device;
  policy.max_free_pages = kOneRing * kDirectSegmentsMax;
  policy.final_check = FinalCheck::response;
  policy.ordering = Ordering::barrier;
  policy.discard = Discard::off;
  return policy;
}

BackPolicy back_2012() {
  BackPolicy policy = back_2011();
  policy.preset = Preset::seed_2012;
  policy.final_check = FinalCheck::dispatch;
  policy.ordering = Ordering::both;
  policy.discard = Discard::secure;
  // In force once `persistent` is switched on: "in an array ... we have to perform a linear search", and a cap of
  // BLKIF_MAX_SEGMENTS_PER_REQUEST times the requests of a ring.
  policy.persistent_lookup = Lookup::list;
  policy.max_persistent_grants = kOneRing * kDirectSegmentsMax;
  policy.persistent_purge = Purge::off;
  policy.persistent_unused_ms = 0;
  return policy;
}

BackPolicy back_2015() {
  BackPolicy policy = event_driven_back(Preset::seed_2015);
  policy.pools = Pools::per_device;
  policy.queues = 16;               // the largest of the seed's table
  policy.persistent_unused_ms = 0;  // time stamps came in 2018
  return policy;
}

}  // namespace

template <>
BackPolicy preset_policy(Preset preset) {
  switch (preset) {
    case Preset::none:
      break;
    case Preset::linux_6_x:
      return linux_back();
    case Preset::seed_2011:
      return back_2011();
    case Preset::seed_2012:
      return back_2012();
    case Preset::seed_2015:
      return back_2015();
  }
  return {};
}

template <>
FrontPolicy preset_policy(Preset preset) {
  FrontPolicy policy;
  policy.preset = preset;
  if (preset == Preset::none) return policy;
  policy.polling = Polling::event;
  if (preset == Preset::linux_6_x) return policy;
  policy.pools = Pools::per_device;
  if (preset == Preset::seed_2015) return policy;
  policy.persistent = false;
  policy.indirect_segments = 0;
  return policy;
}

template <>
HostPolicy preset_policy(Preset /*preset*/) {
  return {};
}

}  // namespace xblk::blkif
