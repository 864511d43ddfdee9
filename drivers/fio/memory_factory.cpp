// open_device() of the test engine libxblk-fio-memory.so: what the device is like comes in the policy option.
#include <charconv>

#include "drivers/fio/device_factory.hpp"
#include "drivers/fio/memory_device.hpp"

namespace xblk::fio_engine {

Result<std::unique_ptr<blkfront::BlockDevice>> open_device(const DeviceOptions& options) {
  MemoryDeviceOptions memory;
  memory.capacity = Sectors(64 * 2048);  // 64 MiB
  memory.statistics_path = options.statistics_path;
  for (const auto& [key, value] : options.policy) {
    std::uint64_t number = 0;
    const auto [end, code] = std::from_chars(value.data(), value.data() + value.size(), number);
    if (code != std::errc() || end != value.data() + value.size())
      return fail(EINVAL, key + ": '" + value + "' is no number");
    if (key == "queues")
      memory.queues = static_cast<unsigned>(number);
    else if (key == "ring")
      memory.ring_entries = static_cast<unsigned>(number);
    else if (key == "seed")
      memory.seed = number;
    else if (key == "discard")
      memory.discard = number != 0;
    else if (key == "bad_sector")
      memory.bad_sectors.insert(number);
    else if (key == "fail_flush")
      memory.fail_flush = number != 0;
    else
      return fail(EINVAL, "no policy " + key);
  }
  auto device = MemoryDevice::create(std::move(memory));
  if (!device) return tl::unexpected(device.error());
  return std::move(*device);
}

}  // namespace xblk::fio_engine
