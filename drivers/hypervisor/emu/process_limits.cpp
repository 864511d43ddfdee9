#include "drivers/hypervisor/emu/process_limits.hpp"

#include <sys/resource.h>

#include <algorithm>
#include <fstream>

#include "drivers/hypervisor/maptrack.hpp"

namespace xblk::hypervisor::emu {
namespace {

constexpr std::uint64_t kReserve = 4096;            // libraries, stacks, heaps, guests' memories, statistics files
constexpr std::uint64_t kDefaultMapCount = 65'530;  // the kernel's DEFAULT_MAX_MAP_COUNT, when /proc does not say

}  // namespace

std::uint32_t mapping_capacity() {
  std::uint64_t limit = 0;
  if (!(std::ifstream("/proc/sys/vm/max_map_count") >> limit)) limit = kDefaultMapCount;
  const std::uint64_t usable = limit > 2 * kReserve ? limit - kReserve : limit / 2;
  return static_cast<std::uint32_t>(std::clamp<std::uint64_t>(usable, 1, kMaptrackLimitMax));
}

Result<std::uint64_t> raise_descriptor_limit() {
  rlimit files{};
  if (::getrlimit(RLIMIT_NOFILE, &files) != 0) return fail_errno("read the limit of open files");
  files.rlim_cur = files.rlim_max;
  if (::setrlimit(RLIMIT_NOFILE, &files) != 0) return fail_errno("raise the limit of open files");
  return files.rlim_cur;
}

}  // namespace xblk::hypervisor::emu
