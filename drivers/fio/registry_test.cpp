#include "drivers/fio/registry.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "drivers/fio/fio_testing.hpp"
#include "drivers/fio/memory_opener_testing.hpp"

namespace xblk::fio_engine {
namespace {

using testing::HasSubstr;

class RegistryTest : public testing::Test {
 protected:
  RegistryTest() { MemoryOpener::reset(); }

  JobOptions options(const std::string& device = "device/vbd/51712") {
    JobOptions job;
    job.device.device = device;
    return job;
  }

  TemporaryFolder folder_;
  Registry registry_{&MemoryOpener::open};
};

TEST_F(RegistryTest, OpensADeviceOnceForAllItsJobsAndNumbersThem) {
  const auto first = registry_.join(options()).value();
  const auto second = registry_.join(options()).value();
  EXPECT_EQ(first.device, second.device);
  EXPECT_EQ(first.number, 0U);
  EXPECT_EQ(second.number, 1U);
  EXPECT_EQ(MemoryOpener::opened, 1);
  EXPECT_TRUE(registry_.leave(*first.device));
  EXPECT_TRUE(registry_.leave(*second.device));
}

TEST_F(RegistryTest, KeepsDevicesApartByTheirDirectory) {
  const auto first = registry_.join(options("device/vbd/51712")).value();
  const auto second = registry_.join(options("device/vbd/51728")).value();
  EXPECT_NE(first.device, second.device);
  EXPECT_EQ(MemoryOpener::opened, 2);
  EXPECT_TRUE(registry_.leave(*first.device));
  EXPECT_TRUE(registry_.leave(*second.device));
}

TEST_F(RegistryTest, OpensAnewAfterTheLastJobLeft) {
  const auto first = registry_.join(options()).value();
  ASSERT_TRUE(registry_.leave(*first.device));
  const auto second = registry_.join(options()).value();
  EXPECT_EQ(MemoryOpener::opened, 2);
  EXPECT_EQ(second.number, 0U);
  EXPECT_TRUE(registry_.leave(*second.device));
}

TEST_F(RegistryTest, RefusesJobsThatDisagreeAboutTheirDevice) {
  const auto first = registry_.join(options()).value();
  JobOptions other = options();
  other.device.policy["persistent"] = "0";
  const auto refused = registry_.join(other);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, EINVAL);
  EXPECT_THAT(refused.error().message, HasSubstr("device/vbd/51712: jobs that share a device"));
  EXPECT_TRUE(registry_.leave(*first.device));
}

TEST_F(RegistryTest, AcceptsJobsThatCountedTheirMemoryDifferently) {
  const auto first = registry_.join(options()).value();
  JobOptions later = options();
  later.device.buffer_bytes = Bytes(1 << 20);
  const auto second = registry_.join(later);
  ASSERT_TRUE(second) << second.error().message;
  EXPECT_TRUE(registry_.leave(*first.device));
  EXPECT_TRUE(registry_.leave(*first.device));
}

TEST_F(RegistryTest, NamesTheDeviceThatDoesNotOpenAndForgetsIt) {
  MemoryOpener::refusal = fail(ECONNREFUSED, "no host at /run/x");
  const auto refused = registry_.join(options());
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ECONNREFUSED);
  EXPECT_EQ(refused.error().message, "device/vbd/51712: no host at /run/x");
  MemoryOpener::refusal = {};
  const auto opened = registry_.join(options());
  ASSERT_TRUE(opened);
  EXPECT_TRUE(registry_.leave(*opened->device));
}

TEST_F(RegistryTest, TakesEachSnapshotOnceHoweverManyJobs) {
  JobOptions job = options();
  job.snapshots = folder_.file("snapshots");
  job.device.statistics_path = folder_.file("statistics");
  const auto first = registry_.join(job).value();
  const auto second = registry_.join(job).value();
  ASSERT_TRUE(second.device->begin_measuring());
  ASSERT_TRUE(first.device->begin_measuring());
  ASSERT_TRUE(registry_.leave(*first.device));
  ASSERT_TRUE(registry_.leave(*second.device));

  const auto lines = json_lines(job.snapshots);
  ASSERT_EQ(lines.size(), 3U);
  EXPECT_EQ(lines[0]["phase"], "start");
  EXPECT_EQ(lines[1]["phase"], "ramp_end");
  EXPECT_EQ(lines[2]["phase"], "end");
}

TEST_F(RegistryTest, DoesNotOpenWhenItsStartCannotBeRecorded) {
  JobOptions job = options();
  job.snapshots = "/dev/full";
  job.device.statistics_path = folder_.file("statistics");
  const auto refused = registry_.join(job);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ENOSPC);
}

}  // namespace
}  // namespace xblk::fio_engine
