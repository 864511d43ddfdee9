// Rows of the interop matrix with the real fio as the guest, each on a host of its own.
#pragma once

#include <string>
#include <vector>

#include "drivers/scenarios/interop_matrix.hpp"

namespace xblk::scenarios {

// Stores in memory and in a file; the file's path stands for itself until a row runs.
inline const std::vector<std::string> kFioStores = {"ram", "file"};

// fio writes and reads blocks of any number of sectors from 512 bytes to 128 KiB, flushes and trims where the pair of
// ends offers it, and verifies every byte by crc32c. Then what was agreed on, the counters of both ends and the
// absence of leaks are checked.
void run_with_fio(const Pairing& row);

}  // namespace xblk::scenarios
