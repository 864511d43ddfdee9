#include "agent/run/programs.hpp"

#include <fmt/format.h>

namespace xblk::run {
namespace {

namespace fs = std::filesystem;

constexpr const char* kEngineFile = "libxblk-fio.so";

fs::path find_engine(const fs::path& directory) {
  const fs::path prefix = directory.parent_path();
  std::error_code ignored;
  for (const fs::path& place : {directory, prefix / "lib", prefix / "lib/x86_64-linux-gnu", prefix / "lib64"}) {
    if (fs::exists(place / kEngineFile, ignored)) return place / kEngineFile;
  }
  return directory / kEngineFile;
}

}  // namespace

Programs programs_beside(const fs::path& executable) {
  const fs::path directory = executable.parent_path();
  return {.emu_host = directory / "xblk-emu-host", .engine = find_engine(directory)};
}

Programs own_programs() {
  std::error_code error;
  const fs::path self = fs::read_symlink("/proc/self/exe", error);
  return programs_beside(error ? fs::path("./xblk") : self);
}

Status check_present(const Programs& programs) {
  std::error_code ignored;
  if (!fs::exists(programs.emu_host, ignored)) {
    return fail(ENOENT, fmt::format("{} is missing; build or install all of xblk", programs.emu_host.string()));
  }
  if (!fs::exists(programs.engine, ignored)) {
    return fail(ENOENT, fmt::format("{} is missing: this build has no fio engine; run ci/setup and build again",
                                    programs.engine.string()));
  }
  return {};
}

}  // namespace xblk::run
