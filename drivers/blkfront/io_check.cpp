#include "drivers/blkfront/io_check.hpp"

#include <fmt/format.h>

namespace xblk::blkfront {
namespace {

Status check_range(const Io& io, const DeviceInfo& info) {
  const std::uint64_t unit = info.sector_size / kSectorSize;
  if (io.count.value() == 0 || io.sector.value() % unit != 0 || io.count.value() % unit != 0) {
    return fail(EINVAL, fmt::format("sector {} + {}: not a multiple of the sector size {}", io.sector.value(),
                                    io.count.value(), info.sector_size));
  }
  if (io.sector > info.capacity || io.count > info.capacity - io.sector) {
    return fail(EINVAL, fmt::format("sector {} + {}: beyond the device's {} sectors", io.sector.value(),
                                    io.count.value(), info.capacity.value()));
  }
  return {};
}

// blkif.h, notes 4 and 5: only whole discardable extents can be addressed, the first of which begins at
// discard-alignment. The last one may be cut short by the end of the device.
Status check_discard(const Io& io, const DeviceInfo& info, const Features& features) {
  if (!features.has(Feature::discard)) return fail(EOPNOTSUPP, "the backend offers no feature-discard");
  if (io.secure && !features.has(Feature::discard_secure)) {
    return fail(EOPNOTSUPP, "the backend offers no discard-secure");
  }
  const std::uint64_t granularity = info.negotiated.discard_granularity;
  const std::uint64_t offset = info.negotiated.discard_alignment % granularity;
  const Sectors end = io.sector + io.count;
  const bool ends_well = to_bytes(end).value() % granularity == offset || end == info.capacity;
  if (to_bytes(io.sector).value() % granularity != offset || !ends_well) {
    return fail(EINVAL, fmt::format("discard of sector {} + {}: not a multiple of discard-granularity {}, counted from "
                                    "discard-alignment {}",
                                    io.sector.value(), io.count.value(), granularity, offset));
  }
  return {};
}

}  // namespace

Status check_io(const Io& io, const DeviceInfo& info, const Features& features) {
  if (io.op == IoOp::flush) {
    if (features.has(Feature::flush) || features.has(Feature::barrier)) return {};
    return fail(EOPNOTSUPP, "the backend offers neither feature-flush-cache nor feature-barrier");
  }
  if (io.op == IoOp::barrier) {
    if (!features.has(Feature::barrier)) return fail(EOPNOTSUPP, "the backend offers no feature-barrier");
    if (io.count == Sectors(0)) return {};
  }
  if (auto status = check_range(io, info); !status) return status;
  if (io.op != IoOp::read && info.readonly) return fail(EROFS, "the device is read-only");
  if (io.op == IoOp::discard) return check_discard(io, info, features);
  if (reinterpret_cast<std::uintptr_t>(io.buffer) % kSectorSize != 0) {
    return fail(EINVAL, "the buffer is not aligned to 512 bytes");
  }
  return {};
}

}  // namespace xblk::blkfront
