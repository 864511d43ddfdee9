// The main job's parts together: the real fio with the engine as the guest, the host program with the real xenstored.
#include <signal.h>

#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "drivers/base/statistics_file.hpp"
#include "drivers/fio/fio_testing.hpp"
#include "drivers/scenarios/emu_fio.hpp"
#include "drivers/scenarios/emu_rig.hpp"

namespace xblk::scenarios {
namespace {

using fio_engine::counter_total;
using fio_engine::FioOutcome;
using nlohmann::json;
using testing::HasSubstr;

constexpr DomId kGuest{1};

class FioOnEmu : public testing::Test {
 protected:
  FioOutcome fio(const std::string& arguments) {
    return fio_engine::run_fio(folder_, "xblk-fio", fio_place(rig_.options(kGuest), snapshots_) + arguments);
  }

  // Over the whole last run of fio: end minus start, of one end's counter. Exact, as nothing is in flight at either; at
  // the end of the ramp other jobs may be under way.
  [[nodiscard]] std::uint64_t counted(const char* end, const char* counter) const {
    const auto lines = fio_engine::json_lines(snapshots_);
    return counter_total(lines.at(lines.size() - 1)[end], counter) -
           counter_total(lines.at(lines.size() - 3)[end], counter);
  }

  EmuRig rig_;
  fio_engine::TemporaryFolder folder_;
  const std::string snapshots_ = folder_.file("snapshots");
};

class FioVerifies : public FioOnEmu, public testing::WithParamInterface<std::tuple<std::string, int>> {};

TEST_P(FioVerifies, ItsRandomWritesOnTheRamStoreAndTheMechanismIsTheOneAskedFor) {
  const auto& [path, queues] = GetParam();
  EmuVbd vbd{.store = "ram:32MiB", .front_policy = {{"queues", std::to_string(queues)}}, .back_policy = {}};
  if (path != "persistent") vbd.back_policy = {{"persistent", "0"}, {"data-path", path}};
  rig_.attach(kGuest, vbd);

  const auto outcome = fio("--rw=randrw --verify=crc32c --iodepth=64 --numjobs=2 --size=8m --offset_increment=16m");
  ASSERT_EQ(outcome.exit_code, 0) << outcome.output << rig_.log();

  const auto end = fio_engine::json_lines(snapshots_).at(2);
  EXPECT_EQ(end["front"]["queues"].size(), static_cast<std::size_t>(queues));
  const std::uint64_t segments = counted("back", "segments");
  EXPECT_GT(segments, 4096U);
  EXPECT_EQ(counted("back", "requests"), counted("front", "requests"));
  EXPECT_EQ(counted("back", "maps"), path == "map"    ? segments
                                     : path == "copy" ? 0
                                                      : counted("back", "persistent_misses"));
  EXPECT_EQ(counted("back", "unmaps"), path == "map" ? segments : 0);
  EXPECT_EQ(counted("back", "copies"), path == "copy" ? segments : 0);
}

INSTANTIATE_TEST_SUITE_P(Paths, FioVerifies,
                         testing::Combine(testing::Values("persistent", "map", "copy"), testing::Values(1, 2, 4)),
                         [](const auto& test) {
                           return std::get<0>(test.param) + "_q" + std::to_string(std::get<1>(test.param));
                         });

TEST_F(FioOnEmu, CountsOfTheDriverAreTheCountsOfFio) {
  rig_.attach(kGuest, {.store = "null:1GiB", .front_policy = {{"queues", "2"}}, .back_policy = {}});
  const auto outcome = fio("--rw=randread --iodepth=16 --numjobs=2 --size=16m --group_reporting --output-format=json");
  ASSERT_EQ(outcome.exit_code, 0) << outcome.output << rig_.log();
  const json report = json::parse(outcome.output);
  EXPECT_EQ(counted("front", "ios"), report["jobs"][0]["read"]["total_ios"].get<std::uint64_t>());
}

TEST_F(FioOnEmu, FlushesAndTrimsReachTheStore) {
  rig_.attach(kGuest, {.store = "ram:32MiB", .front_policy = {}, .back_policy = {}});
  const auto trims = fio("--rw=trimwrite --iodepth=8 --size=4m");
  ASSERT_EQ(trims.exit_code, 0) << trims.output << rig_.log();
  EXPECT_EQ(counted("back", "requests_discard"), 1024U);  // fio trims each block and then writes it
  const auto flushes = fio("--rw=randwrite --iodepth=8 --size=4m --fsync=16");
  ASSERT_EQ(flushes.exit_code, 0) << flushes.output << rig_.log();
  EXPECT_GE(counted("back", "requests_flush"), 1024U / 16 - 1);
}

TEST_F(FioOnEmu, BlocksBeyondADirectRequestAreVerifiedToo) {
  rig_.attach(kGuest, {.store = "ram:32MiB", .front_policy = {}, .back_policy = {}});
  const auto outcome =
      fio("--rw=randwrite --bsrange=512-256k --bs_unaligned=0 --verify=sha256 --iodepth=32 --size=16m");
  ASSERT_EQ(outcome.exit_code, 0) << outcome.output << rig_.log();
  EXPECT_GT(counted("front", "requests_indirect"), 0U);
}

TEST_F(FioOnEmu, ALostHostEndsTheRunWithAnErrorInsteadOfAHang) {
  rig_.attach(kGuest, {.store = "null:1GiB", .front_policy = {}, .back_policy = {}});
  std::thread killer([this] {
    // From the moment that fio measures.
    while (fio_engine::json_lines(snapshots_).size() < 2) std::this_thread::sleep_for(std::chrono::milliseconds(10));
    ::kill(rig_.host_pid(), SIGKILL);
  });
  const auto outcome = fio("--rw=randread --iodepth=16 --time_based --runtime=50");
  killer.join();
  EXPECT_NE(outcome.exit_code, 0) << outcome.output;
  EXPECT_NE(outcome.exit_code, 124) << "timed out: " << outcome.output;
  EXPECT_THAT(outcome.output, HasSubstr("No such device"));
}

TEST_F(FioOnEmu, SaysInOneLineWhatIsMissing) {
  const auto outcome = fio("--rw=randread --size=1m");
  EXPECT_NE(outcome.exit_code, 0);
  EXPECT_THAT(outcome.output, HasSubstr("xblk: device/vbd/51712: "));
}

}  // namespace
}  // namespace xblk::scenarios
