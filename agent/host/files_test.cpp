#include "agent/host/files.hpp"

#include <cstdlib>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

namespace xblk::host {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class FilesTest : public testing::Test {
 protected:
  FilesTest() {
    std::string name = (fs::temp_directory_path() / "xblk-files-XXXXXX").string();
    directory_ = ::mkdtemp(name.data());
  }
  ~FilesTest() override { fs::remove_all(directory_); }
  fs::path directory_;
};

std::size_t entries(const fs::path& directory) {
  return static_cast<std::size_t>(std::distance(fs::directory_iterator(directory), fs::directory_iterator()));
}

TEST_F(FilesTest, AtomicWriteReplacesAndLeavesNoTemporary) {
  const auto file = directory_ / "results.json";
  ASSERT_TRUE(write_file_atomically(file, "old"));
  ASSERT_TRUE(write_file_atomically(file, std::string(100'000, 'n')));
  EXPECT_EQ(read_file(file, 1 << 20).value(), std::string(100'000, 'n'));
  EXPECT_EQ(entries(directory_), 1U);
}

TEST_F(FilesTest, FailedWriteKeepsTheOldContentAndSaysWhatToDo) {
  // A directory in the way makes rename fail whoever the user is (root ignores permissions).
  const auto target = directory_ / "results.json";
  fs::create_directory(target);
  std::ofstream(target / "kept") << "old";
  const auto status = write_file_atomically(target, "new");
  ASSERT_FALSE(status);
  EXPECT_THAT(status.error().message, HasSubstr(target.string()));
  EXPECT_EQ(entries(directory_), 1U);
  EXPECT_EQ(read_file(target / "kept", 10).value(), "old");
}

TEST_F(FilesTest, FullDiskKeepsTheOldContent) {
  // /dev/full cannot be renamed over, so the full disk is met by writing through a link to it.
  const auto file = directory_ / "results.json";
  ASSERT_TRUE(write_file_atomically(file, "old"));
  fs::create_symlink("/dev/full", fs::path(file).concat("." + std::to_string(::getpid()) + ".tmp"));
  const auto status = write_file_atomically(file, "new");
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ENOSPC);
  EXPECT_EQ(read_file(file, 10).value(), "old");
}

TEST_F(FilesTest, UnfinishedWritesOfTheFileAndNoOthersAreRemoved) {
  for (const char* name : {"results.json", "results.json.17.tmp", "results.json.18.tmp", "other.17.tmp"}) {
    std::ofstream(directory_ / name) << "x";
  }
  remove_unfinished_writes(directory_ / "results.json");
  EXPECT_EQ(entries(directory_), 2U);
  EXPECT_TRUE(fs::exists(directory_ / "results.json"));
  EXPECT_TRUE(fs::exists(directory_ / "other.17.tmp"));
}

TEST_F(FilesTest, ADirectoryIsLockedByOneAtATime) {
  auto first = lock_directory(directory_);
  ASSERT_TRUE(first) << first.error().message;
  const auto second = lock_directory(directory_);
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, EBUSY);
  first->reset();
  EXPECT_TRUE(lock_directory(directory_));
  EXPECT_EQ(lock_directory(directory_ / "absent").error().code, ENOENT);
}

TEST_F(FilesTest, FullDiskIsNamed) {
  const auto error = storage_error(ENOSPC, "write", "/x/results.json");
  EXPECT_EQ(error.message,
            "cannot write /x/results.json: No space left on device; free some space or choose another directory");
}

TEST_F(FilesTest, ReadIsBounded) {
  const auto file = directory_ / "big";
  ASSERT_TRUE(write_file_atomically(file, "12345"));
  EXPECT_EQ(read_file(file, 5).value(), "12345");
  EXPECT_EQ(read_file(file, 4).error().code, EFBIG);
  EXPECT_EQ(read_file("/dev/zero", 1 << 16).error().code, EFBIG);
  EXPECT_EQ(read_file(directory_ / "absent", 4).error().code, ENOENT);
}

TEST_F(FilesTest, RunDirectoryIsNeverReused) {
  const auto run = directory_ / "a" / "b" / "run";
  ASSERT_TRUE(create_run_directory(run, Bytes(1)));
  EXPECT_TRUE(fs::is_directory(run));
  const auto again = create_run_directory(run, Bytes(1));
  ASSERT_FALSE(again);
  EXPECT_EQ(again.error().code, EEXIST);
  EXPECT_THAT(again.error().message, HasSubstr("never overwritten"));
}

TEST_F(FilesTest, RunDirectoryChecksSpaceBeforeCreatingAnything) {
  const auto run = directory_ / "a" / "run";
  const auto status = create_run_directory(run, Bytes(UINT64_MAX));
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ENOSPC);
  EXPECT_EQ(entries(directory_), 0U);
}

TEST_F(FilesTest, RunDirectoryBelowAFileFails) {
  std::ofstream(directory_ / "file") << "x";
  EXPECT_FALSE(create_run_directory(directory_ / "file" / "run", Bytes(1)));
}

}  // namespace
}  // namespace xblk::host
