// A registry's opener for tests: its devices are in memory.
#pragma once

#include <memory>

#include "drivers/fio/memory_device.hpp"
#include "drivers/fio/registry.hpp"

namespace xblk::fio_engine {

// Registry takes a plain function, as fio's process has one opener; so what it opens is set here.
struct MemoryOpener {
  static inline MemoryDeviceOptions options;
  static inline Status refusal;                // given instead of a device when it is an error
  static inline MemoryDevice* last = nullptr;  // alive as long as it has jobs
  static inline int opened = 0;

  static void reset() {
    options = {};
    options.capacity = Sectors(2048);
    refusal = {};
    last = nullptr;
    opened = 0;
  }

  static Result<std::unique_ptr<blkfront::BlockDevice>> open(const DeviceOptions& device_options) {
    if (!refusal) return tl::unexpected(refusal.error());
    options.statistics_path = device_options.statistics_path;
    auto device = MemoryDevice::create(options);
    if (!device) return tl::unexpected(device.error());
    ++opened;
    last = device->get();
    return std::move(*device);
  }
};

}  // namespace xblk::fio_engine
