// The engine in the real fio, on a device in memory: what fio does with each answer of ours is fio's to show.
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "drivers/fio/fio_testing.hpp"

namespace xblk::fio_engine {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class Engine : public testing::Test {
 protected:
  FioOutcome fio(const std::string& arguments, const std::string& engine = "xblk-fio-memory",
                 const std::string& device = "--xblk_device=device/vbd/51712 ") {
    return run_fio(folder_, engine, device + arguments);
  }

  void expect_refused(const FioOutcome& outcome, const std::string& line) {
    EXPECT_NE(outcome.exit_code, 0) << outcome.output;
    EXPECT_THAT(outcome.output, AllOf(HasSubstr("xblk: "), HasSubstr(line)));
  }

  [[nodiscard]] std::string snapshot_options() const {
    return " --xblk_snapshots=" + folder_.file("snapshots") + " --xblk_statistics=" + folder_.file("statistics");
  }
  [[nodiscard]] std::vector<nlohmann::json> snapshots() const { return json_lines(folder_.file("snapshots")); }

  static std::uint64_t total(const nlohmann::json& snapshot, const char* counter) {
    return counter_total(snapshot["front"], counter);
  }

  TemporaryFolder folder_;
};

TEST_F(Engine, VerifiesRandomWritesOfJobsThatShareSmallRings) {
  const auto outcome =
      fio("--thread=1 --rw=randrw --verify=crc32c --iodepth=32 --numjobs=3 --size=8m --offset_increment=8m "
          "--xblk_policy=queues=2,ring=8");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
  EXPECT_THAT(outcome.output, HasSubstr("err= 0"));
}

TEST_F(Engine, VerifiesWithDirectIoFlushesTrimsAndOddBlockSizes) {
  const auto outcome =
      fio("--thread=1 --rw=randwrite --direct=1 --bsrange=512-64k --verify=sha256 --fsync=7 --iodepth=16 --size=16m");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
  const auto trims = fio("--thread=1 --rw=trimwrite --iodepth=16 --size=16m --end_fsync=1");
  EXPECT_EQ(trims.exit_code, 0) << trims.output;
}

TEST_F(Engine, SnapshotsCoverWhatFioCounts) {
  const auto outcome =
      fio("--thread=1 --rw=randread --iodepth=8 --numjobs=2 --group_reporting --size=8m --output-format=json" +
          snapshot_options());
  ASSERT_EQ(outcome.exit_code, 0) << outcome.output;
  const auto report = nlohmann::json::parse(outcome.output);
  const auto lines = snapshots();
  ASSERT_EQ(lines.size(), 3U);
  EXPECT_EQ(lines[1]["phase"], "ramp_end");
  // From "start": without a ramp fio counts everything, and only then is nothing in flight when a snapshot is taken.
  EXPECT_EQ(total(lines[2], "ios") - total(lines[0], "ios"),
            report["jobs"][0]["read"]["total_ios"].get<std::uint64_t>());
}

TEST_F(Engine, TheRampIsOutsideTheMeasuredWindow) {
  const auto outcome =
      fio("--thread=1 --rw=randread --iodepth=4 --ramp_time=200ms --runtime=200ms --time_based --output-format=json" +
          snapshot_options());
  ASSERT_EQ(outcome.exit_code, 0) << outcome.output;
  const auto report = nlohmann::json::parse(outcome.output);
  const auto lines = snapshots();
  ASSERT_EQ(lines.size(), 3U);
  const auto counted = report["jobs"][0]["read"]["total_ios"].get<std::uint64_t>();
  const auto in_window = total(lines[2], "ios") - total(lines[1], "ios");
  EXPECT_GT(total(lines[1], "ios"), 0U);
  // I/Os in flight at either edge may be on one side for fio and on the other for the driver.
  EXPECT_LE(in_window > counted ? in_window - counted : counted - in_window, 2 * 4U);
}

TEST_F(Engine, ABatchIsOnePush) {
  const auto outcome =
      fio("--thread=1 --rw=randread --iodepth=32 --iodepth_batch=16 --iodepth_batch_complete_min=16 --iodepth_low=16 "
          "--size=16m" +
          snapshot_options());
  ASSERT_EQ(outcome.exit_code, 0) << outcome.output;
  const auto end = snapshots().at(2);
  EXPECT_EQ(total(end, "ios"), 4096U);
  EXPECT_LE(total(end, "batches"), 4096U / 16 + 1);
}

TEST_F(Engine, ErrorsOfIosEndTheJobWithTheirErrno) {
  const auto outcome = fio("--thread=1 --rw=read --iodepth=4 --size=1m --xblk_policy=bad_sector=100");
  EXPECT_NE(outcome.exit_code, 0);
  EXPECT_THAT(outcome.output, AllOf(HasSubstr("err= 5"), HasSubstr("Input/output error")));
}

TEST_F(Engine, AFailedFlushEndsTheJob) {
  const auto outcome = fio("--thread=1 --rw=write --iodepth=4 --size=1m --fsync=8 --xblk_policy=fail_flush=1");
  EXPECT_NE(outcome.exit_code, 0);
  EXPECT_THAT(outcome.output, AllOf(HasSubstr("err= 5"), HasSubstr("func=flush")));
}

TEST_F(Engine, ATrimThatTheDeviceLacksIsNotSupported) {
  const auto outcome = fio("--thread=1 --rw=randtrim --size=1m --xblk_policy=discard=0");
  EXPECT_NE(outcome.exit_code, 0);
  EXPECT_THAT(outcome.output, HasSubstr("Operation not supported"));
}

TEST_F(Engine, RefusesForkedJobsWithTheHint) {
  expect_refused(fio("--rw=read --size=1m"), "add thread=1");
}

TEST_F(Engine, RefusesWhatDoesNotFitTheDevice) {
  expect_refused(fio("--thread=1 --rw=read --size=65m"), "size=68157440 is more than the device's 67108864 bytes");
  expect_refused(fio("--thread=1 --rw=read --size=1m --bs=1000"), "block size 1000 is no multiple");
  expect_refused(fio("--thread=1 --rw=read --size=1m --nrfiles=2"), "remove nrfiles");
}

TEST_F(Engine, RefusesBadOptionsByName) {
  expect_refused(fio("--thread=1 --rw=read --size=1m --xblk_policy=fast"), "xblk_policy: 'fast' is not key=value");
  expect_refused(fio("--thread=1 --rw=read --size=1m --xblk_policy=nonsense=1"), "no policy nonsense");
  expect_refused(fio("--thread=1 --rw=read --size=1m", "xblk-fio-memory", ""), "xblk_device is missing");
}

TEST_F(Engine, RefusesAFioThatItWasNotBuiltFor) {
  const std::string job = "--thread=1 --rw=read --size=1m --numjobs=2";
  expect_refused(fio(job, "xblk-fio-other-version"), "built for fio-3.0 ");
  expect_refused(fio(job, "xblk-fio-other-options"), "option ");
  expect_refused(fio(job, "xblk-fio-other-job"), "thread_data");
  expect_refused(fio(job, "xblk-fio-other-io"), "io_u has another layout");
}

}  // namespace
}  // namespace xblk::fio_engine
