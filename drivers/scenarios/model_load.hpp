// What scenarios in virtual time do with a connected device: load it, sum its counters, close it and look for leaks.
#pragma once

#include <cstdint>

#include "drivers/base/counters.hpp"
#include "drivers/scenarios/model_rig.hpp"
#include "drivers/scenarios/workload.hpp"

namespace xblk::scenarios {

// At least `ios` verified I/Os, on as many channels as there are queues, each with its own part of the device. Returns
// a digest of what happened.
std::uint64_t run_workload(ModelRig& rig, blkfront::Device<ModelPlatform>& device, std::uint64_t ios,
                           std::uint64_t seed, Workload::Options options = {});

// Sums over all queues, those that are not connected at the moment too.
QueueSample frontend_sample(blkfront::Device<ModelPlatform>& device);
QueueSample backend_sample(ModelRig& rig, DomId guest);

// Closes the device, which is the only one of the rig; afterwards nothing may be left of it.
void close_and_expect_no_leak(ModelRig& rig, blkfront::Device<ModelPlatform>& device, DomId guest);

}  // namespace xblk::scenarios
