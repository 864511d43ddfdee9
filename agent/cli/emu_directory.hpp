// Finds the emulated host that `xblk emu up` left running.
#pragma once

#include <optional>
#include <string>

#include <sys/types.h>
#include <nlohmann/json.hpp>

#include "agent/run/layout.hpp"
#include "drivers/base/result.hpp"

namespace xblk::cli {

// $XDG_RUNTIME_DIR/xblk-emu, or /tmp/xblk-emu-<uid>.
std::string default_emu_directory();

struct EmuDescription {
  pid_t pid = 0;
  unsigned guests = 0;
  nlohmann::json document;
};

// ESRCH when none runs there.
Result<EmuDescription> describe_emu(const run::HostLayout& layout);

}  // namespace xblk::cli
