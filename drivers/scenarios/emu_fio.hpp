// The real fio as a guest of the emulation.
#pragma once

#include <string>

#include "drivers/fio/device_factory.hpp"

namespace xblk::scenarios {

// What a job needs to find its device. `snapshots`: a file, or empty.
inline std::string fio_place(const fio_engine::DeviceOptions& device, const std::string& snapshots) {
  return " --thread=1 --xblk_hypervisor=" + device.hypervisor_socket +
         " --xblk_domid=" + std::to_string(device.domid.value()) + " --xblk_xenstore=" + device.xenstore_socket +
         " --xblk_device=" + device.device + " --xblk_statistics=" + device.statistics_path +
         (snapshots.empty() ? "" : " --xblk_snapshots=" + snapshots) + " ";
}

}  // namespace xblk::scenarios
