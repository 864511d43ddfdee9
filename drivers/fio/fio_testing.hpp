// Runs the real fio with a built engine, and reads what the engine left behind. Shared by the tests of the engine here
// and of the whole system in scenarios.
#pragma once

#include <sys/wait.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

namespace xblk::fio_engine {

class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "xblk-fio-XXXXXX").string();
    if (::mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("mkdtemp " + pattern);
    path_ = pattern;
  }
  ~TemporaryFolder() { std::filesystem::remove_all(path_); }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  [[nodiscard]] std::string file(const std::string& name) const { return path_ / name; }

 private:
  std::filesystem::path path_;
};

inline std::vector<nlohmann::json> json_lines(const std::string& path) {
  std::vector<nlohmann::json> lines;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) lines.push_back(nlohmann::json::parse(line));
  return lines;
}

// Of one end of a snapshot: the sum over its queues.
inline std::uint64_t counter_total(const nlohmann::json& end, const char* counter) {
  std::uint64_t sum = 0;
  for (const auto& queue : end["queues"]) sum += queue["counters"][counter].get<std::uint64_t>();
  return sum;
}

struct FioOutcome {
  int exit_code = -1;
  std::string output;  // both streams
};

// `engine`: the library's name without lib and .so. Files that fio leaves behind go to the folder.
inline FioOutcome run_fio(const TemporaryFolder& folder, const std::string& engine, const std::string& arguments) {
  const std::string command = "cd " + folder.file("") + " && timeout 60 fio --ioengine=external:" XBLK_BIN_DIR "/lib" +
                              engine + ".so --name=job --bs=4k " + arguments + " 2>&1";
  FioOutcome outcome;
  FILE* pipe = ::popen(command.c_str(), "r");
  if (pipe == nullptr) throw std::runtime_error("cannot start: " + command);
  for (char part[4096]; std::fgets(part, sizeof part, pipe) != nullptr;) outcome.output += part;
  const int status = ::pclose(pipe);
  outcome.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return outcome;
}

}  // namespace xblk::fio_engine
