// Is there a fio, and is it the one the engine was built for?
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "agent/fio/version.hpp"
#include "agent/host/host.hpp"

namespace xblk::fio {

struct Found {
  std::filesystem::path program;
  Version version;
  std::string version_text;  // as fio prints it
};

// Runs `program --version`. Errors say what to install.
Result<Found> find(host::Host& host, const std::filesystem::path& program = "fio");

// The version whose headers built our engine; empty when this build has no engine.
std::optional<Version> engine_version();

// fio checks only a number that rarely changes, not the layout of its structures: an engine fits exactly one version.
Status check_engine(const Found& found, const std::optional<Version>& built_for);

}  // namespace xblk::fio
