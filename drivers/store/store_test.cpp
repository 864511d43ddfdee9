#include "drivers/store/store.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <vector>

namespace xblk::store {
namespace {

int run(Queue& queue, const Operation& operation) {
  queue.submit({&operation, 1});
  std::array<Finished, 2> finished;
  EXPECT_EQ(queue.reap(finished), 1u);
  EXPECT_EQ(finished[0].cookie, operation.cookie);
  return finished[0].error;
}

TEST(RamStore, KeepsWhatWasWrittenThroughAnyQueueAndDiscardReadsAsZeros) {
  auto store = open_store("ram:64KiB");
  ASSERT_TRUE(store) << store.error().message;
  EXPECT_EQ((*store)->geometry().capacity, Sectors(128));
  auto writer = (*store)->open_queue();
  auto reader = (*store)->open_queue();
  ASSERT_TRUE(writer && reader);
  std::vector<std::byte> data(24 * kSectorSize);
  for (std::size_t i = 0; i < data.size(); ++i) data[i] = static_cast<std::byte>(i * 7 + 1);
  const std::array<Piece, 2> out = {Piece{data.data(), 8 * kSectorSize},
                                    Piece{data.data() + 8 * kSectorSize, 16 * kSectorSize}};
  EXPECT_EQ(run(**writer, {Op::write, Sectors(3), Sectors(24), out, 11}), 0);
  EXPECT_EQ(run(**writer, {Op::flush, Sectors(0), Sectors(0), {}, 12}), 0);
  std::vector<std::byte> back(data.size());
  const std::array<Piece, 1> in = {Piece{back.data(), 24 * kSectorSize}};
  EXPECT_EQ(run(**reader, {Op::read, Sectors(3), Sectors(24), in, 13}), 0);
  EXPECT_EQ(back, data);
  EXPECT_EQ(run(**reader, {Op::discard, Sectors(5), Sectors(20), {}, 14}), 0);
  EXPECT_EQ(run(**reader, {Op::read, Sectors(3), Sectors(24), in, 15}), 0);
  EXPECT_TRUE(std::equal(back.begin(), back.begin() + 2 * kSectorSize, data.begin()));
  EXPECT_TRUE(std::all_of(back.begin() + 2 * kSectorSize, back.begin() + 22 * kSectorSize,
                          [](std::byte b) { return b == std::byte{0}; }));
  EXPECT_TRUE(std::equal(back.begin() + 22 * kSectorSize, back.end(), data.begin() + 22 * kSectorSize));
}

TEST(NullStore, FinishesEverythingAndTouchesNoMemory) {
  auto store = open_store("null:1GiB");
  ASSERT_TRUE(store);
  auto queue = (*store)->open_queue();
  const std::array<Piece, 1> nowhere = {Piece{nullptr, kPageSize}};
  EXPECT_EQ(run(**queue, {Op::read, Sectors(0), Sectors(8), nowhere, 1}), 0);
  EXPECT_EQ(run(**queue, {Op::write, Sectors(0), Sectors(8), nowhere, 2}), 0);
}

}  // namespace
}  // namespace xblk::store
