#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "drivers/base/check.hpp"
#include "drivers/base/prng.hpp"
#include "drivers/base/statistics_file.hpp"
#include "drivers/base/units.hpp"

namespace xblk {
namespace {

template <class A, class B>
concept CanAdd = requires(A a, B b) {
  a + b;
};
template <class A, class B>
concept CanCompare = requires(A a, B b) {
  a == b;
};

TEST(Units, QuantitiesAddAndIdentifiersOnlyCompare) {
  EXPECT_EQ(to_bytes(Sectors(3) + Sectors(5)), Bytes(4096));
  EXPECT_LT(GrantRef(8), GrantRef(9));
  EXPECT_EQ(Instant(1000) + micros(2) - Instant(1000), Nanos(2000));
  static_assert(!CanAdd<GrantRef, GrantRef>);
  static_assert(!CanCompare<GrantRef, EventPort>);
  static_assert(!CanAdd<Instant, Instant>);
  static_assert(CanAdd<Sectors, Sectors> && !CanAdd<Sectors, Bytes>);
}

TEST(Prng, SameSeedSameSequenceAndBoundHolds) {
  Prng a(42), b(42), c(43);
  bool differs = false;
  for (int i = 0; i < 1000; ++i) {
    const auto x = a.next();
    EXPECT_EQ(x, b.next());
    differs |= x != c.next();
    EXPECT_LT(a.below(7), 7u);
    b.below(7);
  }
  EXPECT_TRUE(differs);
}

TEST(CheckDeathTest, NamesTheConditionAndTheReason) {
  EXPECT_DEATH(XBLK_CHECK(1 == 2, "one is not two"), "CHECK\\(1 == 2\\) failed: one is not two");
}

class StatisticsFileTest : public testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/xblk-statistics-XXXXXX";
    ASSERT_NE(::mkdtemp(name), nullptr);
    directory_ = name;
    path_ = directory_ + "/vbd.stats";
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }
  std::string directory_, path_;
};

TEST_F(StatisticsFileTest, ReaderSeesWhatTheWriterCounted) {
  auto file = StatisticsFile::create(path_, End::back, 3, 51712, 4);
  ASSERT_TRUE(file) << file.error().message;
  file->header().queues = 2;
  file->header().generation = 1;
  file->queues()[0].add(Counter::maps, 5);
  file->queues()[1].add(Counter::maps);
  file->queues()[1].set(Gauge::mappings_in_use, 9);
  auto read = read_statistics(path_);
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(read->queues.size(), 2u);
  EXPECT_EQ(read->total(Counter::maps), 6u);
  EXPECT_EQ(read->queues[1].get(Gauge::mappings_in_use), 9u);
  EXPECT_EQ(read->domid, 3u);
  EXPECT_EQ(read->end, End::back);
}

TEST_F(StatisticsFileTest, TruncatedForeignAndLyingFilesAreRefusedWithTheirName) {
  {
    auto file = StatisticsFile::create(path_, End::front, 1, 1, 2);
    ASSERT_TRUE(file);
    file->header().queues = 2;
  }
  std::filesystem::resize_file(path_, 300);
  auto truncated = read_statistics(path_);
  ASSERT_FALSE(truncated);
  EXPECT_NE(truncated.error().message.find(path_), std::string::npos);
  std::filesystem::resize_file(path_, 10);
  EXPECT_FALSE(read_statistics(path_));
  std::ofstream(path_) << std::string(4096, 'x');
  EXPECT_FALSE(read_statistics(path_));
  EXPECT_EQ(read_statistics(directory_ + "/absent").error().code, ENOENT);
}

TEST_F(StatisticsFileTest, UnwritableDirectoryIsAnErrorNotACrash) {
  auto file = StatisticsFile::create(directory_ + "/no/such/dir.stats", End::front, 1, 1, 2);
  ASSERT_FALSE(file);
  EXPECT_EQ(file.error().code, ENOENT);
}

}  // namespace
}  // namespace xblk
