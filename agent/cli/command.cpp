#include "agent/cli/command.hpp"

#include <cerrno>
#include <filesystem>

#include <sys/stat.h>
#include <unistd.h>

#include "agent/host/files.hpp"

namespace xblk::cli {

namespace {

// The terminal is gone (SIGHUP): nobody is left to read.
bool hung_up() {
  struct stat facts {};
  return errno == EIO && ::fstat(STDOUT_FILENO, &facts) == 0 && S_ISCHR(facts.st_mode);
}

}  // namespace

int complain(ExitCode code, const std::string& message) {
  fmt::print(stderr, "xblk: {}\n", message);
  return code;
}

Result<report::Results> load_results_of(const std::string& path) {
  std::error_code ignored;
  const bool directory = std::filesystem::is_directory(path, ignored);
  return report::load_results(directory ? (std::filesystem::path(path) / "results.json").string() : path);
}

int print(const std::string& text, int code) {
  const bool written = std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0;
  if (written || errno == EPIPE || hung_up()) return code;
  return complain(kEnvironment, std::string("cannot write to standard output: ") + std::strerror(errno));
}

int write_or_complain(const std::string& path, const std::string& text) {
  if (auto status = host::write_file_atomically(path, text); !status) {
    return complain(kEnvironment, status.error().message);
  }
  return kOk;
}

}  // namespace xblk::cli
