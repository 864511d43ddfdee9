// How the engine gets its device. The engine knows only the interface; whoever builds the engine links one
// implementation of open_device(): drivers/apps has the one for the emulated hypervisor, tests have one in memory.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "drivers/base/result.hpp"
#include "drivers/base/units.hpp"
#include "drivers/blkfront/block_device.hpp"

namespace xblk::fio_engine {

struct DeviceOptions {
  std::string hypervisor_socket;              // of the emulated hypervisor's host
  DomId domid{};                              // the guest that this process is
  std::string device;                         // frontend's directory, relative to the guest's home: device/vbd/51712
  std::string xenstore_socket;                // the guest's own
  std::string statistics_path;                // where the frontend publishes its counters
  Bytes buffer_bytes{};                       // memory that all jobs together will ask of allocate_buffers()
  std::map<std::string, std::string> policy;  // overrides, written to the frontend's xblk-policy before it connects
  Nanos connect_timeout{};

  friend bool operator==(const DeviceOptions&, const DeviceOptions&) = default;
};

// Connects the frontend; returns when both ends are XenbusStateConnected.
Result<std::unique_ptr<blkfront::BlockDevice>> open_device(const DeviceOptions& options);

}  // namespace xblk::fio_engine
