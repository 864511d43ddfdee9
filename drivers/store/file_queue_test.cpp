// The io_uring queue on files that a test can make do anything: pipes for short and late transfers, /dev/full for a
// device without space, alignments that no disk here has.
#include "drivers/store/file_queue.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <string>
#include <thread>
#include <vector>

#include "drivers/store/store_testing.hpp"

namespace xblk::store::testing {
namespace {

const std::atomic<std::uint64_t> kCapacity{2048};  // sectors

UniqueFd memory_file(std::uint64_t sectors = kCapacity) {
  UniqueFd file(::memfd_create("queue", MFD_CLOEXEC));
  EXPECT_EQ(::ftruncate(file.get(), static_cast<off_t>(sectors * kSectorSize)), 0);
  return file;
}

std::unique_ptr<FileQueue> open(FileAccess access) {
  auto queue = FileQueue::open(std::move(access));
  EXPECT_TRUE(queue) << queue.error().message;
  return queue ? std::move(*queue) : nullptr;
}

TEST(FileQueue, AShortReadGoesOnWhereItStopped) {
  std::array<int, 2> pipe{};
  ASSERT_EQ(::pipe(pipe.data()), 0);
  const UniqueFd writer(pipe[1]);
  const auto queue = open({.fd = UniqueFd(pipe[0]), .capacity = kCapacity});
  const Pages pages(2 * kSectorSize);
  const std::array<Piece, 2> pieces = {pages.piece(kSectorSize, kSectorSize), pages.piece(0, kSectorSize)};
  const Operation read{Op::read, Sectors(0), Sectors(2), pieces, 5};
  queue->submit({&read, 1});
  Finished finished;
  EXPECT_EQ(queue->reap({&finished, 1}), 0u);
  EXPECT_FALSE(readable(queue->completion_fd()));
  for (const std::size_t bytes : {100, 500, 423}) {  // ends in the first piece, in the second, one byte before the end
    const std::vector<char> data(bytes, static_cast<char>(bytes));
    ASSERT_EQ(::write(writer.get(), data.data(), bytes), static_cast<ssize_t>(bytes));
    ASSERT_TRUE(readable(queue->completion_fd(), 60'000));
    EXPECT_EQ(queue->reap({&finished, 1}), 0u) << "more is to come";
  }
  ASSERT_EQ(::write(writer.get(), "z", 1), 1);
  EXPECT_EQ(reap_all(*queue, 1), (std::map<std::uint64_t, int>{{5, 0}}));
  EXPECT_EQ(std::to_integer<int>(*pages.at(kSectorSize + 99)), 100);
  EXPECT_EQ(std::to_integer<int>(*pages.at(kSectorSize + 100)), 500 & 0xff);
  EXPECT_EQ(std::to_integer<int>(*pages.at(87)), 500 & 0xff);
  EXPECT_EQ(std::to_integer<int>(*pages.at(88)), 423 & 0xff);
  EXPECT_EQ(std::to_integer<int>(*pages.at(kSectorSize - 1)), 'z');
}

TEST(FileQueue, NothingMoreToReadIsAnError) {
  std::array<int, 2> pipe{};
  ASSERT_EQ(::pipe(pipe.data()), 0);
  UniqueFd writer(pipe[1]);
  const auto queue = open({.fd = UniqueFd(pipe[0]), .capacity = kCapacity});
  ASSERT_EQ(::write(writer.get(), "abc", 3), 3);
  writer.reset();
  EXPECT_EQ(read_at(*queue, 0, 1).error, EIO);
}

TEST(FileQueue, ADeviceWithoutSpaceIsItsErrno) {
  const auto queue = open({.fd = UniqueFd(::open("/dev/full", O_RDWR | O_CLOEXEC)), .capacity = kCapacity});
  EXPECT_EQ(write_at(*queue, 0, 8, std::byte{1}), ENOSPC);
}

TEST(FileQueue, AFlushThatFailsIsItsErrno) {
  std::array<int, 2> pipe{};
  ASSERT_EQ(::pipe(pipe.data()), 0);
  const UniqueFd reader(pipe[0]);
  const auto queue = open({.fd = UniqueFd(pipe[1]), .capacity = kCapacity});
  EXPECT_EQ(run(*queue, {Op::flush}), EINVAL);
}

TEST(FileQueue, AReadOnlyFileIsReadAndFlushedOnly) {
  const auto queue = open({.fd = memory_file(), .readonly = true, .capacity = kCapacity});
  EXPECT_EQ(write_at(*queue, 0, 8, std::byte{1}), EROFS);
  EXPECT_EQ(run(*queue, {Op::discard, Sectors(0), Sectors(8)}), EOPNOTSUPP);
  EXPECT_EQ(run(*queue, {Op::flush}), 0);
  EXPECT_TRUE(reads_as(*queue, 0, 8, std::byte{0}));
}

// More stretches of memory than one system call takes.
TEST(FileQueue, AnyNumberOfPieces) {
  const auto queue = open({.fd = memory_file(8192), .capacity = kCapacity});
  constexpr std::size_t kCount = 1800;  // above IOV_MAX, and no two are neighbours
  const Pages pages(2 * kCount * kSectorSize);
  std::vector<Piece> pieces;
  for (std::size_t i = 0; i < kCount; ++i) {
    pieces.push_back(pages.piece(2 * i * kSectorSize, kSectorSize));
    std::fill_n(pages.at(2 * i * kSectorSize), kSectorSize, static_cast<std::byte>(i % 251));
  }
  EXPECT_EQ(run(*queue, {Op::write, Sectors(3), Sectors(kCount), pieces, 1}), 0);
  const auto back = read_at(*queue, 3, kCount);
  for (std::size_t i = 0; i < kCount; ++i)
    ASSERT_EQ(back.data[i * kSectorSize + 17], static_cast<std::byte>(i % 251)) << "piece " << i;
  pages.fill(std::byte{0});
  EXPECT_EQ(run(*queue, {Op::read, Sectors(3), Sectors(kCount), pieces, 1}), 0);
  for (std::size_t i = 0; i < kCount; ++i) {
    ASSERT_EQ(*pages.at(2 * i * kSectorSize), static_cast<std::byte>(i % 251)) << "piece " << i;
    ASSERT_EQ(*pages.at((2 * i + 1) * kSectorSize), std::byte{0}) << "between the pieces";
  }
}

// As on a disk with blocks of 4096 bytes, whose requests may still consist of segments of 512.
TEST(FileQueue, PiecesSmallerThanABlockGoThroughAnAlignedCopy) {
  const auto queue = open({.fd = memory_file(), .memory_align = 4096, .block_bytes = 4096, .capacity = kCapacity});
  constexpr std::size_t kOperations = 3 * FileQueue::kCopiesMax;  // some wait for another one's copy to end
  const Pages pages(kOperations * kPageSize);
  std::vector<std::array<Piece, 3>> pieces;
  std::vector<Operation> batch;
  for (std::size_t i = 0; i < kOperations; ++i) {
    const std::size_t base = i * kPageSize;
    std::fill_n(pages.at(base), kPageSize, static_cast<std::byte>(i));
    pieces.push_back({pages.piece(base + 3584, 512), pages.piece(base, 3072), pages.piece(base + 3072, 512)});
    *pages.at(base + 3584) = std::byte{0xa1};
  }
  for (std::size_t i = 0; i < kOperations; ++i) batch.push_back({Op::write, Sectors(8 * i), Sectors(8), pieces[i], i});
  queue->submit(batch);
  for (const auto& [cookie, error] : reap_all(*queue, kOperations)) EXPECT_EQ(error, 0) << cookie;
  const auto back = read_at(*queue, 0, 8 * kOperations);
  for (std::size_t i = 0; i < kOperations; ++i) {
    ASSERT_EQ(back.data[i * kPageSize], std::byte{0xa1}) << "the first piece";
    ASSERT_EQ(back.data[i * kPageSize + 1], static_cast<std::byte>(i));
    ASSERT_EQ(back.data[(i + 1) * kPageSize - 1], static_cast<std::byte>(i));
  }
  pages.fill(std::byte{0});
  for (Operation& operation : batch) operation.op = Op::read;
  queue->submit(batch);
  for (const auto& [cookie, error] : reap_all(*queue, kOperations)) EXPECT_EQ(error, 0) << cookie;
  for (std::size_t i = 0; i < kOperations; ++i) {
    ASSERT_EQ(*pages.at(i * kPageSize + 3584), std::byte{0xa1});
    ASSERT_EQ(*pages.at(i * kPageSize + 3071), static_cast<std::byte>(i));
  }
}

// Until the last byte of the copy is there, the caller's pages are as they were.
TEST(FileQueue, ACopyIsHandedOutWhole) {
  std::array<int, 2> pipe{};
  ASSERT_EQ(::pipe(pipe.data()), 0);
  const UniqueFd writer(pipe[1]);
  const auto queue = open({.fd = UniqueFd(pipe[0]), .memory_align = 1024, .capacity = kCapacity});
  const Pages pages(kPageSize);
  pages.fill(std::byte{0xee});
  const Piece piece = pages.piece(kSectorSize, 2 * kSectorSize);
  const Operation read{Op::read, Sectors(0), Sectors(2), {&piece, 1}, 1};
  queue->submit({&read, 1});
  const std::string half(kSectorSize, 'h');
  ASSERT_EQ(::write(writer.get(), half.data(), half.size()), static_cast<ssize_t>(half.size()));
  ASSERT_TRUE(readable(queue->completion_fd(), 60'000));
  Finished finished;
  EXPECT_EQ(queue->reap({&finished, 1}), 0u);
  EXPECT_EQ(*pages.at(kSectorSize), std::byte{0xee});
  ASSERT_EQ(::write(writer.get(), half.data(), half.size()), static_cast<ssize_t>(half.size()));
  EXPECT_EQ(reap_all(*queue, 1)[1], 0);
  EXPECT_EQ(*pages.at(kSectorSize), std::byte{'h'});
  EXPECT_EQ(*pages.at(3 * kSectorSize - 1), std::byte{'h'});
}

// With O_DIRECT only the end of a file stops a transfer inside a block, and nothing can go on from there.
TEST(FileQueue, AFileThatEndsInsideABlockIsAnError) {
  std::array<int, 2> pipe{};
  ASSERT_EQ(::pipe(pipe.data()), 0);
  const UniqueFd writer(pipe[1]);
  const auto queue = open({.fd = UniqueFd(pipe[0]), .memory_align = 512, .block_bytes = 4096, .capacity = kCapacity});
  const std::string part(1000, 'p');
  ASSERT_EQ(::write(writer.get(), part.data(), part.size()), static_cast<ssize_t>(part.size()));
  EXPECT_EQ(read_at(*queue, 0, 8).error, EIO);
}

// The kernel's work belongs to the thread that submitted it; its end must not take the operations with it.
TEST(FileQueue, TheThreadThatSubmittedMayEnd) {
  const auto queue = open({.fd = memory_file(), .discard = true, .capacity = kCapacity});
  std::vector<Operation> batch;
  for (std::uint64_t i = 0; i < 200; ++i)
    batch.push_back({i % 2 == 0 ? Op::flush : Op::discard, Sectors(0), Sectors(i % 2 * 8), {}, i});
  std::thread([&] { queue->submit(batch); }).join();
  for (const auto& [cookie, error] : reap_all(*queue, batch.size())) EXPECT_EQ(error, 0) << cookie;
}

}  // namespace
}  // namespace xblk::store::testing
