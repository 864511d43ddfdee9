#include "agent/cli/emu_directory.hpp"

#include <cerrno>
#include <csignal>
#include <cstdlib>

#include <fmt/format.h>
#include <unistd.h>

#include "agent/host/files.hpp"

namespace xblk::cli {

std::string default_emu_directory() {
  const char* runtime = std::getenv("XDG_RUNTIME_DIR");
  if (runtime != nullptr && *runtime != '\0') return std::string(runtime) + "/xblk-emu";
  return fmt::format("/tmp/xblk-emu-{}", ::geteuid());
}

Result<EmuDescription> describe_emu(const run::HostLayout& layout) {
  const auto none = [&] {
    return fail(ESRCH, fmt::format("no emulated host runs in {}; start one with 'xblk emu up --dir {}'",
                                   layout.directory.string(), layout.directory.string()));
  };
  constexpr std::size_t kLimit = 65536;
  const auto text = host::read_file(layout.description(), kLimit);
  if (!text) return none();
  const auto json = nlohmann::json::parse(*text, nullptr, false);
  if (!json.is_object() || !json.contains("pid") || !json["pid"].is_number_integer()) {
    return fail(EINVAL, layout.description().string() + " is not the description of an emulated host");
  }
  EmuDescription found{.pid = json["pid"].get<pid_t>(), .document = json};
  if (found.pid <= 0 || (::kill(found.pid, 0) != 0 && errno == ESRCH)) return none();
  if (json.contains("guests") && json["guests"].is_number_unsigned()) found.guests = json["guests"].get<unsigned>();
  return found;
}

}  // namespace xblk::cli
