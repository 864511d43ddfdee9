// The real Host. One per process: it owns the signal watch.
#pragma once

#include <memory>

#include "agent/host/host.hpp"

namespace xblk::host {

// Blocks SIGINT and SIGTERM: create it before any thread.
Result<std::unique_ptr<Host>> create_linux_host();

// random bits from getrandom(2)
std::uint64_t entropy();

}  // namespace xblk::host
