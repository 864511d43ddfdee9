#include "agent/host/limits.hpp"

#include <cstdlib>

#include <sys/resource.h>

#include "agent/host/files.hpp"

namespace xblk::host {

Limits limits() {
  constexpr std::uint64_t kMapCountDefault = 65530;  // the kernel's DEFAULT_MAX_MAP_COUNT, when /proc does not say
  Limits out;
  const auto maps = read_file("/proc/sys/vm/max_map_count", 64);
  out.max_map_count = maps ? std::strtoull(maps->c_str(), nullptr, 10) : kMapCountDefault;
  rlimit files{};
  ::getrlimit(RLIMIT_NOFILE, &files);
  out.open_files = files.rlim_max;
  return out;
}

}  // namespace xblk::host
