#include "agent/toggle/created_file.hpp"

#include <fstream>

#include <gtest/gtest.h>

#include "agent/toggle/test_directory.hpp"

namespace xblk::toggle {
namespace {

namespace fs = std::filesystem;

TEST(CreatedFile, IsMadeOnceAndRemovedOnce) {
  const TestDirectory directory;
  const fs::path path = directory.path() / "disk";
  const auto file = create_file(path, Bytes(1 << 20));
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_EQ(fs::file_size(path), 1U << 20);
  EXPECT_EQ(create_file(path, Bytes(1)).error().code, EEXIST);
  EXPECT_EQ(remove_created(*file), Removal::removed);
  EXPECT_FALSE(fs::exists(path));
  EXPECT_EQ(remove_created(*file), Removal::gone);
}

TEST(CreatedFile, AnotherOneInItsPlaceIsLeftAlone) {
  const TestDirectory directory;
  const fs::path path = directory.path() / "disk";
  const auto file = create_file(path, Bytes(4096)).value();
  fs::rename(path, directory.path() / "moved");  // its inode stays in use
  std::ofstream(path) << "of somebody else";
  EXPECT_EQ(remove_created(file), Removal::not_ours);
  EXPECT_TRUE(fs::exists(path));
  fs::remove(path);
  fs::create_symlink(directory.path() / "moved", path);
  EXPECT_EQ(remove_created(file), Removal::not_ours) << "not through a link either";
}

TEST(CreatedFile, FailureSaysWhatToDoAndLeavesNothing) {
  const TestDirectory directory;
  EXPECT_EQ(create_file(directory.path() / "none" / "disk", Bytes(1)).error().code, ENOENT);
  const fs::path huge = directory.path() / "huge";
  EXPECT_FALSE(create_file(huge, Bytes(std::uint64_t{1} << 62)));
  EXPECT_FALSE(fs::exists(huge));
}

}  // namespace
}  // namespace xblk::toggle
