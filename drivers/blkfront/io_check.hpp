// Whether the device can do an I/O at all: every refusal that a backend would make, made before the ring.
#pragma once

#include "drivers/base/result.hpp"
#include "drivers/blkfront/block_device.hpp"
#include "drivers/blkfront/features.hpp"

namespace xblk::blkfront {

// EOPNOTSUPP: not offered. EINVAL: misaligned or out of range. EROFS: a change of a read-only device.
Status check_io(const Io& io, const DeviceInfo& info, const Features& features);

}  // namespace xblk::blkfront
