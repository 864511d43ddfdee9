// A file to be a store of, gone with the test.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <string>

#include "drivers/base/check.hpp"
#include "drivers/base/units.hpp"

namespace xblk::scenarios {

class TemporaryDisk {
 public:
  TemporaryDisk() {
    std::string pattern = (std::filesystem::temp_directory_path() / "xblk-disk-XXXXXX").string();
    XBLK_CHECK(::mkdtemp(pattern.data()) != nullptr, "a temporary directory for the test");
    directory_ = pattern;
  }
  ~TemporaryDisk() { std::filesystem::remove_all(directory_); }
  TemporaryDisk(const TemporaryDisk&) = delete;
  TemporaryDisk& operator=(const TemporaryDisk&) = delete;

  [[nodiscard]] std::string path() const { return directory_ / "disk"; }
  // For `params`: the file is made, or resized, to this size.
  [[nodiscard]] std::string store(Bytes size) const { return "file:" + std::to_string(size.value()) + ":" + path(); }

 private:
  std::filesystem::path directory_;
};

}  // namespace xblk::scenarios
