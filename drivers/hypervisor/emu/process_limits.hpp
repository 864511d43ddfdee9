// Limits of the host process that decide how much it can emulate.
#pragma once

#include <cstdint>

#include "drivers/base/result.hpp"

namespace xblk::hypervisor::emu {

// How many pages this process may hold mapped: vm.max_map_count less a reserve for everything else in the process, and
// at most what a maptrack handle can name. For HypervisorConfig::maptrack_limit, `plan` and `doctor`.
[[nodiscard]] std::uint32_t mapping_capacity();

// Raises the soft limit of open files to the hard one, and returns it. Each port costs the host up to 5.
Result<std::uint64_t> raise_descriptor_limit();

}  // namespace xblk::hypervisor::emu
