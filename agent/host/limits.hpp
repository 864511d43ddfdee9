// Limits of this machine that an experiment can meet.
#pragma once

#include <cstdint>

namespace xblk::host {

struct Limits {
  std::uint64_t max_map_count = 0;  // vm.max_map_count: mappings of one process
  std::uint64_t open_files = 0;     // RLIMIT_NOFILE: the hard limit, up to which our processes raise theirs
};

Limits limits();

}  // namespace xblk::host
