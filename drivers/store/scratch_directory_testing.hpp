// A directory that ends with its test.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <string>

namespace xblk::store::testing {

// In the build tree, which is on a disk where /tmp often is not.
class ScratchDirectory {
 public:
  ScratchDirectory() {
    std::string name = XBLK_BIN_DIR "/store-test-XXXXXX";
    EXPECT_NE(::mkdtemp(name.data()), nullptr) << name;
    path_ = name;
  }
  ScratchDirectory(const ScratchDirectory&) = delete;
  ScratchDirectory& operator=(const ScratchDirectory&) = delete;
  ~ScratchDirectory() { std::filesystem::remove_all(path_); }
  [[nodiscard]] std::string file(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

}  // namespace xblk::store::testing
