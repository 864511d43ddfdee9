// Drivers of history as sets of policies, so that an old result can be had again, and one change of it measured alone.
//
// `linux-6.x` is the kernel's pair of today. A `seed-` preset is the pair as the author of that seed found it: switch
// the one policy of the seed, and see what the change did.
//
//   seed-2011   final-check: response -> dispatch      one 4 KiB ring, mapped per request, barriers
//   seed-2012   persistent: off -> on                  the same with cache flushes; on: a list, capped, never purged
//   seed-2015   pools: per-device -> per-queue         several rings, indirect requests, a tree of persistent grants
#pragma once

#include "drivers/blkif/policy.hpp"

namespace xblk::blkif {

template <class Policy>
Policy preset_policy(Preset preset);

template <>
FrontPolicy preset_policy(Preset preset);
template <>
BackPolicy preset_policy(Preset preset);
// The host has no preset: what it decides holds for all its devices.
template <>
HostPolicy preset_policy(Preset preset);

}  // namespace xblk::blkif
