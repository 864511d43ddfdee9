// The programs an experiment starts. They stand beside the running one, so that a build tree and an installation work
// alike and no PATH decides which build is measured.
#pragma once

#include <filesystem>

#include "drivers/base/result.hpp"

namespace xblk::run {

struct Programs {
  std::filesystem::path emu_host;
  std::filesystem::path engine;  // libxblk-fio.so
  std::filesystem::path fio = "fio";
};

// Beside `executable`, the engine also in the lib directories of the same prefix. Where nothing is found the path is
// the first place looked at: starting it then names a file.
Programs programs_beside(const std::filesystem::path& executable);

// Of the running process.
Programs own_programs();

// Says what is missing and what builds it.
Status check_present(const Programs& programs);

}  // namespace xblk::run
