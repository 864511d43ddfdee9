#include "drivers/fio/snapshots.hpp"

#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "drivers/base/statistics_file.hpp"
#include "drivers/fio/fio_testing.hpp"

namespace xblk::fio_engine {
namespace {

using testing::HasSubstr;

TEST(TlbIpis, SumsTheRowOverAllCpus) {
  std::istringstream interrupts(
      "           CPU0       CPU1\n"
      "  1:          9          0   IO-APIC    1-edge      i8042\n"
      "RES:        100        200   Rescheduling interrupts\n"
      "TLB:       4921       4938   TLB shootdowns\n");
  EXPECT_EQ(tlb_ipis(interrupts), 9859U);
}

TEST(TlbIpis, AreUnknownWhereTheKernelCountsNone) {
  std::istringstream interrupts("           CPU0\nIPI0:  1  Rescheduling interrupts\n");
  EXPECT_EQ(tlb_ipis(interrupts), std::nullopt);
}

class Snapshots : public testing::Test {
 protected:
  StatisticsFile statistics(const std::string& name, End end) {
    auto file = StatisticsFile::create(folder_.file(name), end, 7, 51712, 4).value();
    file.header().queues = 2;
    file.header().generation = 3;
    return file;
  }

  TemporaryFolder folder_;
};

TEST_F(Snapshots, HoldBothEndsNegotiatedQueues) {
  auto front = statistics("front", End::front);
  auto back = statistics("back", End::back);
  front.queues()[1].add(Counter::ios, 42);
  back.queues()[0].add(Counter::maps, 11);
  back.queues()[0].set(Gauge::mappings_in_use, 5);
  const SnapshotSource source{folder_.file("snapshots"), "device/vbd/51712", DomId(7), front.path(), back.path()};

  ASSERT_TRUE(append_snapshot(source, Phase::start));
  ASSERT_TRUE(append_snapshot(source, Phase::end));

  const auto lines = json_lines(source.file);
  ASSERT_EQ(lines.size(), 2U);
  EXPECT_EQ(lines[0]["phase"], "start");
  EXPECT_EQ(lines[1]["phase"], "end");
  EXPECT_EQ(lines[0]["device"], "device/vbd/51712");
  EXPECT_EQ(lines[0]["domid"], 7);
  EXPECT_LE(lines[0]["monotonic_ns"].get<std::int64_t>(), lines[1]["monotonic_ns"].get<std::int64_t>());
  EXPECT_GT(lines[1]["process_cpu_ns"].get<std::int64_t>(), lines[0]["process_cpu_ns"].get<std::int64_t>());
  EXPECT_EQ(lines[0]["front"]["generation"], 3);
  ASSERT_EQ(lines[0]["front"]["queues"].size(), 2U);
  EXPECT_EQ(lines[0]["front"]["queues"][1]["counters"]["ios"], 42);
  EXPECT_EQ(lines[0]["back"]["queues"][0]["counters"]["maps"], 11);
  EXPECT_EQ(lines[0]["back"]["queues"][0]["gauges"]["mappings_in_use"], 5);
}

TEST_F(Snapshots, SayNullForABackendOutOfSight) {
  const auto front = statistics("front", End::front);
  const SnapshotSource source{folder_.file("snapshots"), "d", DomId(7), front.path(), ""};
  ASSERT_TRUE(append_snapshot(source, Phase::start));
  EXPECT_TRUE(json_lines(source.file).at(0)["back"].is_null());
}

TEST_F(Snapshots, AreNoneWithoutAFile) {
  EXPECT_TRUE(append_snapshot({"", "d", DomId(7), "", ""}, Phase::start));
}

TEST_F(Snapshots, FailWhenAStatisticsFileIsGone) {
  const SnapshotSource source{folder_.file("snapshots"), "d", DomId(7), folder_.file("absent"), ""};
  const auto status = append_snapshot(source, Phase::start);
  ASSERT_FALSE(status);
  EXPECT_THAT(status.error().message, HasSubstr("absent"));
}

TEST_F(Snapshots, FailOnAFullDisk) {
  const auto front = statistics("front", End::front);
  const auto status = append_snapshot({"/dev/full", "d", DomId(7), front.path(), ""}, Phase::start);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ENOSPC);
}

}  // namespace
}  // namespace xblk::fio_engine
