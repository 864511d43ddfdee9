// What files, file systems and operators can do to a file store.
#include "drivers/store/file_store.hpp"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>

#include <fmt/format.h>

#include "drivers/base/unique_fd.hpp"
#include "drivers/store/scratch_directory_testing.hpp"
#include "drivers/store/store_testing.hpp"

namespace xblk::store::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class FileStoreTest : public ::testing::Test {
 protected:
  // A file of this many bytes, all 0x33.
  [[nodiscard]] std::string make_file(const std::string& name, std::size_t bytes) const {
    std::ofstream(directory_.file(name)) << std::string(bytes, '\x33');
    return directory_.file(name);
  }
  static Error refusal(const std::string& specification) {
    const auto store = open_store(specification);
    EXPECT_FALSE(store) << specification;
    return store ? Error() : store.error();
  }
  static std::uint64_t bytes_of(const std::string& path) { return std::filesystem::file_size(path); }

  ScratchDirectory directory_;
};

TEST_F(FileStoreTest, AnExistingFileHasItsOwnSize) {
  const auto store = must_open("file:" + make_file("disk", 3 * kPageSize));
  EXPECT_EQ(store->geometry().capacity, Sectors(24));
  const auto queue = must_open_queue(*store);
  EXPECT_TRUE(reads_as(*queue, 0, 24, std::byte{0x33}));
}

TEST_F(FileStoreTest, APartOfABlockAtTheEndIsNotUsed) {
  const auto store = must_open("file:" + make_file("disk", 3 * kPageSize - 1));
  const std::uint64_t block = store->geometry().sector_size;
  EXPECT_EQ(to_bytes(store->geometry().capacity).value(), (3 * kPageSize - 1) / block * block);
}

TEST_F(FileStoreTest, ASizeCreatesGrowsAndShrinksAFile) {
  const std::string path = directory_.file("disk:with:colons");
  EXPECT_EQ(must_open("file:64KiB:" + path)->geometry().capacity, Sectors(128));
  EXPECT_EQ(bytes_of(path), 65536u);
  EXPECT_EQ(must_open("file:128KiB:" + path)->geometry().capacity, Sectors(256));
  EXPECT_EQ(bytes_of(path), 131072u);
  EXPECT_EQ(must_open("file:4KiB:" + path)->geometry().capacity, Sectors(8));
  EXPECT_EQ(bytes_of(path), 4096u);
}

TEST_F(FileStoreTest, RefusalsSayWhatIsWrongWithThePath) {
  EXPECT_EQ(refusal("file:" + directory_.file("absent")).code, ENOENT);
  EXPECT_THAT(refusal("file:" + directory_.file("absent")).message, HasSubstr("no such file; write file:SIZE:/"));
  EXPECT_EQ(refusal("file:1MiB:" + directory_.file("absent/disk")).code, ENOENT);
  EXPECT_EQ(refusal("file:" + directory_.file("")).code, EISDIR);
  EXPECT_EQ(refusal("file:1MiB:" + directory_.file("")).code, EISDIR);
  ASSERT_EQ(::mkfifo(directory_.file("fifo").c_str(), 0600), 0);
  EXPECT_THAT(refusal("file:" + directory_.file("fifo")).message, HasSubstr("neither a file nor a block device"));
  EXPECT_EQ(refusal("file:/dev/full").code, EINVAL);
  EXPECT_THAT(refusal("file:" + make_file("empty", 0)).message, HasSubstr("is empty; write file:SIZE:/"));
}

// Root may write everything, so root becomes somebody else for the moment of opening. A file in memory, since that one
// is reachable for everybody.
TEST_F(FileStoreTest, AFileThatMayNotBeWrittenIsReadOnly) {
  const UniqueFd memory(::memfd_create("disk", MFD_CLOEXEC));
  const std::string content(kPageSize, '\x33');
  ASSERT_EQ(::write(memory.get(), content.data(), content.size()), static_cast<ssize_t>(content.size()));
  ASSERT_EQ(::fchmod(memory.get(), 0444), 0);
  const std::string path = fmt::format("/proc/self/fd/{}", memory.get());
  const bool root = ::geteuid() == 0;
  ASSERT_TRUE(!root || ::seteuid(65534) == 0);
  const auto store = open_store("file:" + path);
  const auto too_large = open_store("file:8KiB:" + path);
  ASSERT_TRUE(!root || ::seteuid(0) == 0);
  ASSERT_TRUE(store) << store.error().message;
  EXPECT_TRUE((*store)->geometry().readonly);
  EXPECT_FALSE((*store)->geometry().discard);
  EXPECT_THAT((*store)->description(), HasSubstr(", read-only"));
  const auto queue = must_open_queue(**store);
  EXPECT_TRUE(reads_as(*queue, 0, 8, std::byte{0x33}));
  EXPECT_EQ(write_at(*queue, 0, 8, std::byte{1}), EROFS);
  EXPECT_EQ(run(*queue, {Op::discard, Sectors(0), Sectors(8)}), EOPNOTSUPP);
  ASSERT_FALSE(too_large);
  EXPECT_THAT(too_large.error().message, HasSubstr("has 8 sectors and cannot be grown to 16 from here"));
}

TEST_F(FileStoreTest, GoesAroundThePageCacheWhereTheFileSystemAllows) {
  const std::string path = make_file("disk", kPageSize);
  const UniqueFd direct(::open(path.c_str(), O_RDONLY | O_DIRECT));
  struct statfs file_system {};
  ASSERT_EQ(::statfs(path.c_str(), &file_system), 0);
  constexpr long kTmpfs = 0x01021994;
  const bool possible = direct && file_system.f_type != kTmpfs;
  EXPECT_THAT(must_open("file:" + path)->description(), HasSubstr(possible ? "O_DIRECT in blocks of" : "buffered"));

  const UniqueFd memory(::memfd_create("disk", MFD_CLOEXEC));
  const auto store = must_open(fmt::format("file:4KiB:/proc/self/fd/{}", memory.get()));
  EXPECT_THAT(store->description(), HasSubstr("buffered, as its file system takes no O_DIRECT"));
  EXPECT_EQ(store->geometry().sector_size, kSectorSize);
}

TEST_F(FileStoreTest, ADiscardGivesTheBlocksBack) {
  const std::string path = make_file("disk", 1 << 20);
  const UniqueFd file(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  ASSERT_EQ(::fsync(file.get()), 0);
  const auto blocks = [&] {
    struct stat status {};
    EXPECT_EQ(::fstat(file.get(), &status), 0);
    return status.st_blocks;
  };
  ASSERT_GE(blocks(), 2048);
  const auto store = must_open("file:" + path);
  const auto queue = must_open_queue(*store);
  EXPECT_EQ(run(*queue, {Op::discard, Sectors(1024), Sectors(1024)}), 0);
  EXPECT_LT(blocks(), 2048 - 512);
  EXPECT_EQ(bytes_of(path), 1u << 20) << "the size stays";
  EXPECT_TRUE(reads_as(*queue, 0, 1024, std::byte{0x33}));
  EXPECT_TRUE(reads_as(*queue, 1024, 1024, std::byte{0}));
}

TEST_F(FileStoreTest, AFileCutOffBehindOurBackIsAnErrorAndNoCrash) {
  const std::string path = make_file("disk", 16 * kPageSize);
  const auto store = must_open("file:" + path);
  const auto queue = must_open_queue(*store);
  ASSERT_EQ(::truncate(path.c_str(), 4 * kPageSize), 0);
  EXPECT_TRUE(reads_as(*queue, 0, 32, std::byte{0x33}));
  EXPECT_EQ(read_at(*queue, 24, 16).error, EIO) << "across the new end";
  EXPECT_EQ(read_at(*queue, 32, 8).error, EIO) << "behind it";
  ASSERT_EQ(::truncate(path.c_str(), 4 * kPageSize + 100), 0);
  EXPECT_EQ(read_at(*queue, 32, 8).error, EIO) << "inside a sector";
  EXPECT_EQ(store->geometry().capacity, Sectors(128)) << "until somebody says resize";
  ASSERT_TRUE(store->resize(Sectors(0)));
  EXPECT_EQ(to_bytes(store->geometry().capacity).value(), 4 * kPageSize);
}

TEST_F(FileStoreTest, AFileThatLostItsNameGoesOn) {
  const std::string path = make_file("disk", kPageSize);
  const auto store = must_open("file:" + path);
  std::filesystem::remove(path);
  static_cast<void>(make_file("disk", 2 * kPageSize));
  const auto queue = must_open_queue(*store);
  EXPECT_EQ(write_at(*queue, 0, 8, std::byte{0x44}), 0);
  EXPECT_TRUE(reads_as(*queue, 0, 8, std::byte{0x44}));
  EXPECT_TRUE(reads_as(*must_open_queue(*must_open("file:" + path)), 0, 16, std::byte{0x33})) << "another file";
}

TEST_F(FileStoreTest, AWriteAcrossAShrinkDoesNotComeBackWithTheNextGrowth) {
  const std::string path = make_file("disk", 2 * kPageSize);
  const auto store = must_open("file:" + path);
  const auto queue = must_open_queue(*store);
  ASSERT_TRUE(store->resize(Sectors(8)));
  // As a write would that was at the kernel already.
  const UniqueFd late(::open(path.c_str(), O_WRONLY | O_CLOEXEC));
  ASSERT_EQ(::pwrite(late.get(), "late", 4, kPageSize + 100), 4);
  ASSERT_TRUE(store->resize(Sectors(16)));
  EXPECT_TRUE(reads_as(*queue, 8, 8, std::byte{0}));
}

TEST_F(FileStoreTest, ResizeRefusesWhatCannotBe) {
  const std::string path = make_file("disk", kPageSize);
  const auto store = must_open("file:" + path);
  ASSERT_EQ(::truncate(path.c_str(), 0), 0);
  const auto emptied = store->resize(Sectors(0));
  ASSERT_FALSE(emptied);
  EXPECT_THAT(emptied.error().message, HasSubstr("is empty"));
  EXPECT_EQ(store->geometry().capacity, Sectors(8)) << "as it was";
}

// Each in a process of its own, as it changes what the whole process may do.

int write_beyond_the_limit_of_file_sizes(const std::string& path) {
  ::signal(SIGXFSZ, SIG_IGN);
  const rlimit limit{kPageSize, kPageSize};
  const auto store = must_open("file:64KiB:" + path);
  const auto queue = must_open_queue(*store);
  if (::setrlimit(RLIMIT_FSIZE, &limit) != 0) return -1;
  const int inside = write_at(*queue, 0, 8, std::byte{1});
  const int beyond = write_at(*queue, 64, 8, std::byte{1});
  const int across = write_at(*queue, 0, 16, std::byte{1});  // short, then refused
  return inside == 0 && beyond == EFBIG && across == EFBIG ? 0 : 1;
}

TEST_F(FileStoreTest, ALimitOfFileSizesIsItsErrno) {
  EXPECT_EXIT(std::_Exit(write_beyond_the_limit_of_file_sizes(directory_.file("disk"))), ::testing::ExitedWithCode(0),
              "");
}

void open_without_io_uring(const std::string& path, int error) {
  const auto store = must_open("file:64KiB:" + path);
  sock_filter filter[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_io_uring_setup, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | static_cast<std::uint32_t>(error)),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog program{std::size(filter), filter};
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) std::_Exit(1);
  if (::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) std::_Exit(1);
  const auto queue = store->open_queue();
  if (queue) std::_Exit(2);
  std::fprintf(stderr, "%s", queue.error().message.c_str());
  std::_Exit(queue.error().code == error ? 0 : 3);
}

TEST_F(FileStoreTest, WithoutIoUringTheErrorSaysWhy) {
  EXPECT_EXIT(open_without_io_uring(directory_.file("disk"), EPERM), ::testing::ExitedWithCode(0),
              "^io_uring: not permitted here; see sysctl kernel.io_uring_disabled and the container's seccomp filter$");
  EXPECT_EXIT(open_without_io_uring(directory_.file("disk"), ENOSYS), ::testing::ExitedWithCode(0),
              "^io_uring: this kernel has none; file stores need it$");
  EXPECT_EXIT(open_without_io_uring(directory_.file("disk"), ENOMEM), ::testing::ExitedWithCode(0),
              "^io_uring: Cannot allocate memory$");
}

}  // namespace
}  // namespace xblk::store::testing
