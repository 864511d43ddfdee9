#include "agent/run/load.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace xblk::run {
namespace {

using testing::Contains;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

plan::Point point_of(const std::string& load, const std::string& fio) {
  const auto profile =
      plan::parse_profile("name: t\nstore: ram:64MiB\nfixed: {" + load + "}\nfio: {" + fio + "}\n", "t.yaml");
  EXPECT_TRUE(profile) << profile.error().message;
  return plan::expand(*profile).at(0);
}

Result<std::vector<std::string>> command(const plan::Point& point) {
  const GuestFiles files = GuestFiles::in("raw", DomId(2));
  const auto job = job_of(point, {.engine = "/e.so"}, {"/host"}, 2, files);
  if (!job) return tl::unexpected(job.error());
  return fio::argv(*job);
}

TEST(Load, CommandPointsAtTheGuestsOwnDisk) {
  const auto words = command(point_of("rw: randwrite, bs: 8k, iodepth: 4, numjobs: 2", "runtime: 2s, time_based: on"));
  ASSERT_TRUE(words) << words.error().message;
  for (const char* word : {"--xblk_domid=2", "--xblk_xenstore=/host/xenstored/xenbus-2", "--bs=8192", "--numjobs=2",
                           "--xblk_hypervisor=/host/hypervisor.sock", "--runtime=2000ms", "--time_based=1",
                           "--xblk_snapshots=raw/guest-2.snapshots.jsonl", "--output=raw/guest-2.fio.json"}) {
    EXPECT_THAT(*words, Contains(word));
  }
}

TEST(Load, RuntimeWithoutTimeBasedIsALimitOnly) {
  const auto point = point_of("rw: read", "runtime: 2s, size: 32m");
  const auto words = command(point);
  ASSERT_TRUE(words) << words.error().message;
  EXPECT_THAT(*words, Contains("--runtime=2000ms"));
  EXPECT_THAT(*words, Contains("--size=33554432"));
  EXPECT_THAT(*words, Not(Contains(StartsWith("--time_based"))));
  EXPECT_FALSE(expectation_of(point).runtime);
}

TEST(Load, OtherOptionsPassInOrder) {
  const auto words = command(point_of("rw: randrw", "size: 1m, verify: crc32c, rwmixread: 70"));
  ASSERT_TRUE(words);
  EXPECT_THAT(*words, testing::IsSupersetOf({"--verify=crc32c", "--rwmixread=70"}));
}

TEST(Load, SizeThatFioAloneCouldReadIsRefused) {
  const auto words = command(point_of("rw: read", "size: '50%'"));
  ASSERT_FALSE(words);
  EXPECT_THAT(words.error().message, HasSubstr("'size' cannot be '50%'"));
}

TEST(Load, ExpectsIoInEachDirectionAsked) {
  using fio::Way;
  const auto ways = [](const char* rw) { return expectation_of(point_of(std::string("rw: ") + rw, "size: 1m")).ways; };
  EXPECT_EQ(ways("randread"), std::set{Way::kRead});
  EXPECT_EQ(ways("write"), std::set{Way::kWrite});
  EXPECT_EQ(ways("randtrim"), std::set{Way::kTrim});
  EXPECT_EQ(ways("rw"), (std::set{Way::kRead, Way::kWrite}));
  EXPECT_EQ(ways("trimwrite"), (std::set{Way::kWrite, Way::kTrim}));
  EXPECT_FALSE(moves_data(point_of("rw: trim", "size: 1m")));
  EXPECT_TRUE(moves_data(point_of("rw: trimwrite", "size: 1m")));
}

TEST(Load, MixedBlockSizesHaveNoFixedOne) {
  EXPECT_EQ(expectation_of(point_of("rw: read, bs: 8k", "size: 1m")).block_size, Bytes(8192));
  EXPECT_FALSE(expectation_of(point_of("rw: read", "size: 1m, bssplit: 4k/50:8k/50")).block_size);
}

}  // namespace
}  // namespace xblk::run
