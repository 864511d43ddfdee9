// What a ring is told when it is attached.
#pragma once

#include <cstddef>
#include <cstdint>

#include "drivers/base/units.hpp"
#include "drivers/blkfront/block_device.hpp"
#include "drivers/blkfront/features.hpp"
#include "drivers/blkfront/hold_marks.hpp"
#include "drivers/blkif/wire.hpp"

namespace xblk::blkfront {

// Of one connection.
struct RingSetup {
  std::uint32_t number = 0;  // of the queue
  DomId backend{};
  std::byte* shared = nullptr;
  std::uint32_t pages = 0;
  std::uint32_t slots = 0;
  EventPort port{};
  std::uint32_t segments_max = blkif::kDirectSegmentsMax;  // per request; above 11 requests are indirect
  bool copies = false;                                     // data go through pool pages (data_path.hpp)
  DeviceInfo device;                                       // what I/Os are checked against
  bool reports_pools = true;                               // of rings that share pools, one shows their size
  Features* features = nullptr;
  HoldMarks* marks = nullptr;
};

}  // namespace xblk::blkfront
