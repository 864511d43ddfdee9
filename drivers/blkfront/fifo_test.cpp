#include "drivers/blkfront/fifo.hpp"

#include <gtest/gtest.h>

#include <array>
#include <deque>

#include "drivers/base/prng.hpp"

namespace xblk::blkfront {
namespace {

TEST(Fifo, GivesBackInOrderWhereverItStandsAndHoweverItGrows) {
  constexpr std::uint64_t kSeed = 11;
  SCOPED_TRACE("seed 11");
  Prng random(kSeed);
  Fifo<int> fifo;
  std::deque<int> expected;
  int next = 0;
  for (int round = 0; round < 2000; ++round) {
    for (auto n = random.below(40); n > 0; --n) {
      fifo.push(next);
      expected.push_back(next++);
    }
    std::array<int, 64> taken;
    const std::size_t n = fifo.take(std::span(taken).first(random.below(round < 200 ? 20 : 65)));
    ASSERT_LE(n, expected.size());
    for (std::size_t i = 0; i < n; ++i) {
      ASSERT_EQ(taken[i], expected.front());
      expected.pop_front();
    }
    ASSERT_EQ(fifo.size(), expected.size());
    ASSERT_EQ(fifo.empty(), expected.empty());
    if (!expected.empty()) {
      ASSERT_EQ(fifo.front(), expected.front());
    }
  }
  EXPECT_GT(next, 10000);
}

}  // namespace
}  // namespace xblk::blkfront
