#include "agent/host/process.hpp"

#include <csignal>
#include <cstring>

#include <fmt/format.h>

namespace xblk::host {

std::string ExitStatus::describe() const {
  if (signal != 0) return fmt::format("killed by SIG{}", ::sigabbrev_np(signal) ? ::sigabbrev_np(signal) : "?");
  return fmt::format("exit code {}", exit_code);
}

}  // namespace xblk::host
