// What runs that were killed left behind: changed keys in a xenstore that lives on, journals, directories of hosts.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "agent/host/host.hpp"
#include "agent/toggle/journal.hpp"
#include "drivers/base/result.hpp"

namespace xblk::run {

struct Recovery {
  std::vector<std::string> done;      // one line each
  std::vector<std::string> problems;  // what could not be put back; its journal is kept
};

// Clears away hosts that are gone and puts back the keys of one run's journals, or (with an empty path) of all.
Result<Recovery> recover(const std::filesystem::path& state_directory, host::Host& host,
                         const std::filesystem::path& of_run = {});

// An emulated host keeps its keys in memory, below its own directory: when it is gone, so are they. The second: as
// abandoned_host_directories() gave them.
bool died_with_its_host(const toggle::JournalContent& journal, const std::vector<std::filesystem::path>& left);

}  // namespace xblk::run
