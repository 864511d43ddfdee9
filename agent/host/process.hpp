// One child process in a process group of its own, so that a kill takes its workers too.
#pragma once

#include <cstddef>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <sys/types.h>

#include "drivers/base/units.hpp"

namespace xblk::host {

struct Discard {};
struct ToFile {
  std::filesystem::path path;  // created, truncated
};
struct Capture {
  std::size_t limit = std::size_t{4} << 20;  // bytes kept; the rest is read, so the child never blocks, and dropped
};
using Output = std::variant<Discard, ToFile, Capture>;

struct ProcessSpec {
  std::vector<std::string> argv = {};  // argv[0] is looked up in PATH unless it holds a '/'
  std::vector<std::pair<std::string, std::string>> environment = {};  // added to, or replacing, our own
  std::filesystem::path directory = {};                               // empty: ours
  Output standard_output = Discard{};
  Output standard_error = Discard{};
  bool outlives_us = false;  // a service left behind on purpose: neither our end nor our death ends it
};

struct ExitStatus {
  int exit_code = 0;         // meaningless when `signal` is set
  int signal = 0;            // 0: it ended by itself
  bool ended_by_us = false;  // terminate() was called before it ended

  [[nodiscard]] bool success() const { return signal == 0 && exit_code == 0; }
  [[nodiscard]] std::string describe() const;
};

class Process {
 public:
  // Destruction kills and reaps the whole group: no path leaves an orphan, except one that was asked for.
  virtual ~Process() = default;

  [[nodiscard]] virtual pid_t pid() const = 0;
  [[nodiscard]] virtual std::optional<ExitStatus> status() = 0;  // empty while it runs; never blocks

  // SIGINT, then SIGTERM, then SIGKILL to the group, `grace` apart. fio writes its result on the first.
  virtual ExitStatus terminate(Nanos grace) = 0;

  [[nodiscard]] virtual const std::string& captured_output() const = 0;
  [[nodiscard]] virtual const std::string& captured_error() const = 0;
  [[nodiscard]] virtual bool capture_truncated() const = 0;
};

}  // namespace xblk::host
