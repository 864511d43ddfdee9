// What must be equal before two runs may be compared. A fact that cannot be read is absent, never invented;
// nothing names the machine or its user.
#pragma once

#include <filesystem>

#include <nlohmann/json.hpp>

namespace xblk::host {

// `root` is prepended to /proc, /sys and /etc, so that a test can describe another machine.
nlohmann::json fingerprint(const std::filesystem::path& root = "/");

}  // namespace xblk::host
