#include "agent/run/store_files.hpp"

#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "agent/toggle/test_directory.hpp"

namespace xblk::run {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

class StoreFilesTest : public testing::Test {
 protected:
  std::vector<StoreFile> files(const std::string& store, bool reads_only = false, unsigned guests = 1) {
    store_ = plan::parse_store(store).value();
    return store_files(store_, guests, reads_only);
  }
  std::string path(const std::string& name) { return (directory_.path() / name).string(); }
  Status check(std::span<const StoreFile> found, const std::vector<std::string>& allowed = {}) {
    return check_store_files(found, store_, allowed);
  }

  toggle::TestDirectory directory_;
  plan::StoreSpec store_;
};

TEST_F(StoreFilesTest, OtherStoresHaveNone) {
  EXPECT_THAT(files("null:1GiB"), IsEmpty());
  EXPECT_THAT(files("throttled:70MB/s:1ms:ram:1GiB"), IsEmpty());
}

TEST_F(StoreFilesTest, WhatIsNotThereIsCreated) {
  const auto found = files("file:1MiB:" + path("d-{guest}"), false, 2);
  ASSERT_THAT(found, SizeIs(2));
  EXPECT_EQ(found[1].path, path("d-2"));
  EXPECT_EQ(found[1].use, StoreFileUse::create);
  EXPECT_THAT(describe(found[1]), HasSubstr("will be created, 1m without blocks, and removed at the end"));
  EXPECT_TRUE(check(found));
  EXPECT_FALSE(fs::exists(path("d-1"))) << "looking changes nothing";
}

TEST_F(StoreFilesTest, WhatIsThereIsNotOverwrittenUnlessItIsNamed) {
  std::ofstream(path("d-1")) << "precious";
  const auto found = files("file:" + path("d-{guest}"));
  EXPECT_EQ(found[0].use, StoreFileUse::overwrite);
  EXPECT_THAT(describe(found[0]), HasSubstr("WILL BE OVERWRITTEN"));
  const auto refused = check(found);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, EACCES);
  EXPECT_THAT(refused.error().message, HasSubstr("add --overwrite " + path("d-1")));
  EXPECT_FALSE(check(found, {path("d-2")}));
  EXPECT_TRUE(check(found, {path("d-2"), path("d-1")}));
  EXPECT_TRUE(check(found, {path("d-{guest}")})) << "as the profile has it";
}

TEST_F(StoreFilesTest, WhatIsOnlyReadNeedsNoLeave) {
  std::ofstream(path("d")) << std::string(4096, 'x');
  EXPECT_EQ(files("file:" + path("d"), true)[0].use, StoreFileUse::read);
  EXPECT_EQ(files("file:4KiB:" + path("d"), true)[0].use, StoreFileUse::read);
  EXPECT_EQ(files("file:8KiB:" + path("d"), true)[0].use, StoreFileUse::overwrite) << "it would be resized";
  EXPECT_TRUE(check(files("file:" + path("d"), true)));
}

TEST_F(StoreFilesTest, WhatCannotBeUsedSaysWhy) {
  const auto problem = [&](const std::string& store) {
    const auto found = files(store);
    EXPECT_FALSE(check(found, {found[0].path.string()})) << "no leave makes it usable";
    return found[0].problem;
  };
  EXPECT_THAT(problem("file:" + path("absent")), HasSubstr("no such file; write file:SIZE:"));
  EXPECT_THAT(problem("file:1MiB:" + path("none/d")), HasSubstr("cannot create a file in"));
  EXPECT_THAT(problem("file:1MiB:" + directory_.path().string()), HasSubstr("is a directory"));
  EXPECT_THAT(problem("file:/dev/null"), HasSubstr("neither a file nor a block device"));
  EXPECT_THAT(problem("file:1048575GiB:" + path("d")), HasSubstr("free some space"));
}

TEST_F(StoreFilesTest, AScheduleThatNeverWritesReads) {
  std::ofstream(path("d")) << std::string(1 << 20, 'x');
  const auto use = [&](const std::string& matrix) {
    const auto profile = plan::parse_profile("name: t\nstore: file:" + path("d") + "\n" + matrix, "t.yaml");
    EXPECT_TRUE(profile) << profile.error().message;
    return store_files(make_schedule(*profile, {}, 0, 1)).at(0).use;
  };
  EXPECT_EQ(use("matrix: {rw: [read, randread]}\n"), StoreFileUse::read);
  EXPECT_EQ(use("matrix: {rw: [read, randrw]}\n"), StoreFileUse::overwrite);
  EXPECT_EQ(use("fixed: {rw: trim}\n"), StoreFileUse::overwrite);
}

}  // namespace
}  // namespace xblk::run
