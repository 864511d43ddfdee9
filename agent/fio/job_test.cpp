#include "agent/fio/job.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "agent/fio/discovery.hpp"
#include "agent/host/fake/fake_host.hpp"

namespace xblk::fio {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

GuestJob example() {
  return {.output = "/run/guest1.json",
          .engine = {.library = "/lib/libxblk-fio.so",
                     .hypervisor_socket = "/emu/hypervisor",
                     .domid = DomId(1),
                     .xenstore_socket = "/emu/xenbus-1",
                     .snapshots = "/run/guest1.snapshots",
                     .statistics = "/run/guest1.statistics"},
          .name = "guest1",
          .iodepth = 64,
          .runtime = seconds(3),
          .ramp = millis(500),
          .options = {{"random_generator", "tausworthe64"}, {"norandommap", ""}}};
}

TEST(GuestJob, ExactCommandInFiosOrder) {
  EXPECT_THAT(argv(example()).value(),
              ElementsAre("fio", "--output-format=json+", "--output=/run/guest1.json", "--eta=never", "--name=guest1",
                          "--thread=1", "--group_reporting=1", "--lat_percentiles=1", "--clat_percentiles=0",
                          "--ioengine=external:/lib/libxblk-fio.so", "--xblk_hypervisor=/emu/hypervisor",
                          "--xblk_domid=1", "--xblk_device=device/vbd/51712", "--xblk_xenstore=/emu/xenbus-1",
                          "--xblk_snapshots=/run/guest1.snapshots", "--xblk_statistics=/run/guest1.statistics",
                          "--rw=randread", "--bs=4096", "--iodepth=64", "--numjobs=1", "--runtime=3000ms",
                          "--time_based=1", "--ramp_time=500ms", "--random_generator=tausworthe64", "--norandommap"));
}

TEST(GuestJob, OwnOptionsAreRefusedWithTheAlternative) {
  auto job = example();
  job.options = {{"iodepth", "4"}};
  const auto refused = argv(job);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().message, "fio option 'iodepth' is set by xblk itself; use the parameter 'iodepth'");
  for (const char* bad :
       {"output-format", "output", "thread", "ioengine", "status-interval", "xblk_domid", "", "a b", "--bs"}) {
    EXPECT_FALSE(check_passed_option(bad)) << bad;
  }
  for (const char* good : {"rwmixread", "iodepth_batch_submit", "random_distribution", "rate_iops"}) {
    EXPECT_TRUE(check_passed_option(good)) << good;
  }
}

TEST(ShellQuoted, SurvivesAShell) {
  EXPECT_EQ(shell_quoted({"fio", "--name=a b", "it's", "", "--bs=4k"}), R"(fio '--name=a b' 'it'\''s' '' --bs=4k)");
}

host::FakeHost printing(const std::string& text, int code = 0) {
  return host::FakeHost([=](const host::ProcessSpec&) -> Result<host::FakeLife> {
    return host::FakeLife{.lifetime = millis(1), .exit = {.exit_code = code}, .output = text};
  });
}

TEST(Discovery, ReadsTheVersion) {
  auto host = printing("fio-3.33\n");
  const auto found = find(host).value();
  EXPECT_EQ(found.version, (Version{3, 33}));
  EXPECT_EQ(found.version_text, "fio-3.33");
}

TEST(Discovery, ErrorsSayWhatToInstall) {
  auto old = printing("fio-3.1\n");
  EXPECT_EQ(find(old).error().message, "fio-3.1 is too old: 3.18 or later is needed");
  auto stranger = printing("hello\n");
  EXPECT_THAT(find(stranger).error().message, HasSubstr("is not fio"));
  host::FakeHost missing(
      [](const host::ProcessSpec&) -> Result<host::FakeLife> { return fail(ENOENT, "fio: not found in PATH"); });
  EXPECT_THAT(find(missing).error().message, HasSubstr("apt-get install fio"));
  host::FakeHost hanging(
      [](const host::ProcessSpec&) -> Result<host::FakeLife> { return host::FakeLife{.lifetime = seconds(1000)}; });
  EXPECT_THAT(find(hanging).error().message, HasSubstr("did not answer"));
}

TEST(Discovery, AnEngineFitsOneVersion) {
  const Found found{"fio", {3, 33}, "fio-3.33"};
  EXPECT_TRUE(check_engine(found, Version{3, 33}));
  EXPECT_THAT(check_engine(found, Version{3, 36}).error().message, HasSubstr("built for fio 3.36"));
  EXPECT_THAT(check_engine(found, std::nullopt).error().message, HasSubstr("ci/setup"));
}

}  // namespace
}  // namespace xblk::fio
