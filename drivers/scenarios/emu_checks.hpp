// What scenarios across processes ask again and again.
#pragma once

#include <functional>

#include "drivers/base/counters.hpp"
#include "drivers/scenarios/emu_rig.hpp"

namespace xblk::scenarios {

// Asks until the answer is yes, or for a time that only a hang needs.
bool eventually(const std::function<bool()>& done);

// Sums over all queues of a device, those that are not connected at the moment too; of the process that served it last.
QueueSample frontend_sample(const EmuRig& rig, DomId guest);
QueueSample backend_sample(const EmuRig& rig, DomId guest);

// Waits until the backend has closed; then it may hold nothing of the guest.
void expect_closed_without_leak(EmuRig& rig, DomId guest);

}  // namespace xblk::scenarios
