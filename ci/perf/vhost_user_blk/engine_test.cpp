// The engine in the real fio, on a real vhost-user-blk server.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ci/perf/vhost_user_blk/server_testing.hpp"

namespace xblk::vhost_user {
namespace {

using fio_engine::FioOutcome;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

constexpr std::uint64_t kDiskBytes = 64u << 20;

class VhostUserEngine : public testing::Test {
 protected:
  FioOutcome fio(const StorageDaemon& server, const std::string& arguments) {
    return fio_engine::run_fio(folder_, "xblk-fio-vhost-user",
                               "--thread=1 --xblk_device=" + server.socket() + " " + arguments);
  }

  fio_engine::TemporaryFolder folder_;
};

class VhostUserVerify : public VhostUserEngine, public testing::WithParamInterface<const char*> {};
INSTANTIATE_TEST_SUITE_P(Modes, VhostUserVerify,
                         testing::Values("poll=1", "poll=0", "poll=1,event-index=0", "poll=0,event-index=0"));

TEST_P(VhostUserVerify, RandomWritesOfTwoJobsOnTheirQueues) {
  const StorageDaemon server(raw_disk(folder_, kDiskBytes), 2);
  const auto outcome = fio(server,
                           "--rw=randrw --verify=crc32c --verify_fatal=1 --iodepth=32 --numjobs=2 --size=8m "
                           "--offset_increment=8m --xblk_policy=queues=2," +
                               std::string(GetParam()));
  EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
  EXPECT_THAT(outcome.output, HasSubstr("err= 0"));
}

TEST_F(VhostUserEngine, VerifiesOddBlockSizesFlushesAndAQueueThatIsTooShortForTheDepth) {
  const StorageDaemon server(raw_disk(folder_, kDiskBytes), 1);
  const auto outcome =
      fio(server, "--rw=randwrite --bsrange=512-64k --verify=crc32c --fsync=7 --iodepth=256 --size=16m");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
  const auto trims = fio(server, "--rw=trimwrite --iodepth=16 --size=16m --end_fsync=1");
  EXPECT_EQ(trims.exit_code, 0) << trims.output;
}

// That data which is not what was written is seen: the null store forgets it.
TEST_F(VhostUserEngine, ANullStoreIsReadAtFullSpeedButDoesNotVerify) {
  const StorageDaemon server(null_disk(kDiskBytes), 1);
  EXPECT_EQ(fio(server, "--rw=randread --iodepth=64").exit_code, 0);
  const auto outcome = fio(server, "--rw=randwrite --verify=crc32c --iodepth=16 --size=1m");
  EXPECT_NE(outcome.exit_code, 0);
  EXPECT_THAT(outcome.output, HasSubstr("verify"));
}

TEST_F(VhostUserEngine, SaysInOneLineWhatIsWrong) {
  const StorageDaemon server(null_disk(kDiskBytes), 1);
  EXPECT_THAT(fio(server, "--rw=read --xblk_policy=poll=2").output, HasSubstr("poll = '2': must be from 0 to 1"));
  EXPECT_THAT(fio(server, "--rw=read --xblk_policy=fast=1").output, HasSubstr("no policy fast"));
  EXPECT_THAT(fio(server, "--rw=read --xblk_policy=queues=2").output, HasSubstr("the server has 1 queues, not 2"));
  EXPECT_THAT(fio(server, "--rw=read --numjobs=2").output, HasSubstr("more jobs than the 1 queues"));
  const auto lost = fio_engine::run_fio(folder_, "xblk-fio-vhost-user", "--thread=1 --rw=read --xblk_device=/none");
  EXPECT_NE(lost.exit_code, 0);
  EXPECT_THAT(lost.output,
              AllOf(HasSubstr("/none: connect to the vhost-user server: No such file"), Not(HasSubstr("bug"))));
}

TEST_F(VhostUserEngine, ADeadServerEndsTheRunWithAnError) {
  StorageDaemon server(null_disk(kDiskBytes), 1);
  std::thread killer([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(500));
    server.end(SIGKILL);
  });
  const auto outcome = fio(server, "--rw=randread --iodepth=16 --time_based --runtime=50");
  killer.join();
  EXPECT_NE(outcome.exit_code, 0) << outcome.output;
  EXPECT_NE(outcome.exit_code, 124) << "timed out: " << outcome.output;
  EXPECT_THAT(outcome.output, HasSubstr("No such device"));
}

}  // namespace
}  // namespace xblk::vhost_user
