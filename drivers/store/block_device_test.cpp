// What needs a privileged machine: a block device with blocks of 4096 bytes (a loop device), and a full file system.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/loop.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "drivers/base/unique_fd.hpp"
#include "drivers/store/store_testing.hpp"

namespace xblk::store::testing {
namespace {

using ::testing::HasSubstr;

constexpr off_t kMiB = 1 << 20;

// A tmpfs of this process alone; gone with its mount namespace.
class SmallFileSystem {
 public:
  SmallFileSystem() { EXPECT_NE(::mkdtemp(path_.data()), nullptr); }
  ~SmallFileSystem() {
    ::umount2(path_.c_str(), MNT_DETACH);
    ::rmdir(path_.c_str());
  }
  SmallFileSystem(const SmallFileSystem&) = delete;
  SmallFileSystem& operator=(const SmallFileSystem&) = delete;
  [[nodiscard]] bool mount(const char* size) const {
    return ::unshare(CLONE_NEWNS) == 0 && ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
           ::mount("tmpfs", path_.c_str(), "tmpfs", 0, size) == 0;
  }
  [[nodiscard]] std::string file(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_ = "/tmp/xblk-store-test-XXXXXX";
};

// A block device over a file in memory; detached with its last descriptor.
class LoopDevice {
 public:
  LoopDevice(const std::string& file, off_t bytes) : file_(::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600)) {
    const UniqueFd control(::open("/dev/loop-control", O_RDWR | O_CLOEXEC));
    loop_config config{};
    config.fd = static_cast<std::uint32_t>(file_.get());
    config.block_size = 4096;
    config.info.lo_flags = LO_FLAGS_AUTOCLEAR;
    if (!control || !file_ || ::ftruncate(file_.get(), bytes) != 0) return;
    for (int tries = 0; tries < 10; ++tries) {  // somebody else may take the free one first
      path_ = "/dev/loop" + std::to_string(::ioctl(control.get(), LOOP_CTL_GET_FREE));
      device_ = UniqueFd(::open(path_.c_str(), O_RDWR | O_CLOEXEC));
      if (device_ && ::ioctl(device_.get(), LOOP_CONFIGURE, &config) == 0) return;
      device_.reset();
    }
  }
  [[nodiscard]] bool works() const { return static_cast<bool>(device_); }
  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] bool resize(off_t bytes) const {
    return ::ftruncate(file_.get(), bytes) == 0 && ::ioctl(device_.get(), LOOP_SET_CAPACITY, 0) == 0;
  }
  [[nodiscard]] std::int64_t blocks_in_use() const {  // of 512 bytes
    struct stat status {};
    EXPECT_EQ(::fstat(file_.get(), &status), 0);
    return status.st_blocks;
  }

 private:
  UniqueFd file_;
  UniqueFd device_;
  std::string path_;
};

class BlockDevice : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(file_system_.mount("size=64m"));
    device_.emplace(file_system_.file("medium"), 4 * kMiB);
    ASSERT_TRUE(device_->works()) << std::strerror(errno);
  }
  SmallFileSystem file_system_;
  std::optional<LoopDevice> device_;
};

TEST_F(BlockDevice, HasItsOwnSizeAndBlocks) {
  const auto store = must_open("file:" + device_->path());
  const Geometry geometry = store->geometry();
  EXPECT_EQ(geometry.capacity, Sectors(8192));
  EXPECT_EQ(geometry.sector_size, 4096u);
  EXPECT_TRUE(geometry.discard);
  EXPECT_EQ(geometry.discard_granularity, 4096u);
  EXPECT_THAT(store->description(), HasSubstr("block device '/dev/loop"));
  EXPECT_THAT(store->description(), HasSubstr("O_DIRECT in blocks of 4096 bytes"));
}

TEST_F(BlockDevice, SegmentsSmallerThanABlockWork) {
  const auto store = must_open("file:" + device_->path());
  const auto queue = must_open_queue(*store);
  const Pages pages(4 * kPageSize);
  for (std::size_t i = 0; i < 4 * kPageSize; ++i) *pages.at(i) = static_cast<std::byte>(i / kSectorSize);
  // As a frontend gives them: whole sectors, anywhere in its pages.
  const std::array<Piece, 3> pieces = {pages.piece(7 * 512, 512), pages.piece(4096 + 512, 7 * 512),
                                       pages.piece(12288, 4096)};
  EXPECT_EQ(run(*queue, {Op::write, Sectors(8), Sectors(16), pieces, 1}), 0);
  const auto back = read_at(*queue, 8, 16);
  ASSERT_EQ(back.error, 0);
  const std::vector<int> expected = {7, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31};
  for (std::size_t i = 0; i < expected.size(); ++i)
    EXPECT_EQ(std::to_integer<int>(back.data[i * kSectorSize]), expected[i]) << "sector " << i;
  EXPECT_EQ(write_at(*queue, 1, 8, std::byte{1}), EINVAL) << "not at a block";
  EXPECT_EQ(write_at(*queue, 8, 1, std::byte{1}), EINVAL) << "not a block";
}

TEST_F(BlockDevice, ADiscardGivesTheBlocksBackAndReadsAsZeros) {
  const auto store = must_open("file:" + device_->path());
  const auto queue = must_open_queue(*store);
  EXPECT_EQ(write_at(*queue, 0, 4096, std::byte{0x66}), 0);
  EXPECT_EQ(run(*queue, {Op::flush}), 0);
  const auto before = device_->blocks_in_use();
  EXPECT_EQ(run(*queue, {Op::discard, Sectors(1024), Sectors(2048)}), 0);
  EXPECT_LE(device_->blocks_in_use(), before - 2048);
  EXPECT_TRUE(reads_as(*queue, 0, 1024, std::byte{0x66}));
  EXPECT_TRUE(reads_as(*queue, 1024, 2048, std::byte{0}));
}

TEST_F(BlockDevice, GrowsWithTheDeviceAndNoFurther) {
  const auto store = must_open("file:1MiB:" + device_->path());
  const auto queue = must_open_queue(*store);
  EXPECT_EQ(store->geometry().capacity, Sectors(2048)) << "the first of it";
  EXPECT_EQ(write_at(*queue, 2048, 8, std::byte{1}), EIO);
  ASSERT_TRUE(store->resize(Sectors(8192)));
  const auto too_large = store->resize(Sectors(16384));
  ASSERT_FALSE(too_large);
  EXPECT_THAT(too_large.error().message, HasSubstr("has 8192 sectors and cannot be grown to 16384 from here"));
  ASSERT_FALSE(store->resize(Sectors(4097))) << "no whole block";
  ASSERT_TRUE(device_->resize(8 * kMiB));
  ASSERT_TRUE(store->resize(Sectors(0))) << "whatever it has now";
  EXPECT_EQ(store->geometry().capacity, Sectors(16384));
  EXPECT_EQ(write_at(*queue, 16376, 8, std::byte{1}), 0);
}

TEST(FullFileSystem, IsAnErrorUntilThereIsSpaceAgain) {
  const SmallFileSystem file_system;
  ASSERT_TRUE(file_system.mount("size=1m"));
  const auto store = must_open("file:8MiB:" + file_system.file("sparse"));
  const auto queue = must_open_queue(*store);
  EXPECT_EQ(write_at(*queue, 0, 1024, std::byte{0x12}), 0);
  EXPECT_EQ(write_at(*queue, 4096, 4096, std::byte{0x13}), ENOSPC);
  EXPECT_TRUE(reads_as(*queue, 0, 1024, std::byte{0x12})) << "what is there stays";
  EXPECT_EQ(run(*queue, {Op::flush}), 0);
  EXPECT_EQ(run(*queue, {Op::discard, Sectors(4096), Sectors(4096)}), 0);
  EXPECT_EQ(write_at(*queue, 8192, 512, std::byte{0x14}), 0);
}

// Why this machine cannot run them; empty: it can.
std::string unavailable() {
  const SmallFileSystem file_system;
  if (!file_system.mount("size=1m")) return std::string("mounting a tmpfs: ") + std::strerror(errno);
  if (const LoopDevice device(file_system.file("medium"), kMiB); !device.works())
    return std::string("setting up a loop device: ") + std::strerror(errno);
  return {};
}

}  // namespace
}  // namespace xblk::store::testing

int main(int argc, char** argv) {
  constexpr int kSkipped = 77;  // SKIP_RETURN_CODE of xblk_machine_test()
  if (const std::string reason = xblk::store::testing::unavailable(); !reason.empty()) {
    std::printf("skipped: %s\n", reason.c_str());
    return kSkipped;
  }
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
