// Shared by the tests of this folder: a registry whose devices are in memory, and a folder that goes away again.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "drivers/fio/memory_device.hpp"
#include "drivers/fio/registry.hpp"

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

// Registry takes a plain function, as fio's process has one opener; so what it opens is set here.
struct MemoryOpener {
  static inline MemoryDeviceOptions options;
  static inline Status refusal;                // given instead of a device when it is an error
  static inline MemoryDevice* last = nullptr;  // alive as long as it has jobs
  static inline int opened = 0;

  static void reset() {
    options = {};
    options.capacity = Sectors(2048);
    refusal = {};
    last = nullptr;
    opened = 0;
  }

  static Result<std::unique_ptr<blkfront::BlockDevice>> open(const DeviceOptions& device_options) {
    if (!refusal) return tl::unexpected(refusal.error());
    options.statistics_path = device_options.statistics_path;
    auto device = MemoryDevice::create(options);
    if (!device) return tl::unexpected(device.error());
    ++opened;
    last = device->get();
    return std::move(*device);
  }
};

}  // namespace xblk::fio_engine
