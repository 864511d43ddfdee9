// Rows of the interop matrix in virtual time, each on a system of its own.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "drivers/scenarios/interop_matrix.hpp"

namespace xblk::scenarios {

// A store in memory: one that finishes later has nothing to be waited for in virtual time.
inline const std::string kModelStore = "ram:4MiB";

// Each row: connect, `ios` verified I/Os, disconnect; what was agreed on, the counters and the absence of leaks are
// checked. A failure names the row and the seed; the row draws from `seed` plus its number.
void run_on_model(std::span<const Pairing> rows, std::uint64_t seed, std::uint64_t ios);

}  // namespace xblk::scenarios
