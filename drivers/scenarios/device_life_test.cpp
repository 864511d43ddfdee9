// What happens to a connected device while it is in use: its size changes, its backend is replaced, its ring is broken.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "drivers/peer/scripted_front.hpp"
#include "drivers/scenarios/model_rig.hpp"
#include "drivers/scenarios/workload.hpp"

namespace xblk::scenarios {
namespace {

using testing::HasSubstr;

constexpr DomId kGuest{1};

class DeviceLife : public testing::TestWithParam<const char*> {
 protected:
  std::string backend_key(const std::string& name) {
    return rig_.dom0_keys().read(ModelRig::backend_path(kGuest) + "/" + name).value_or("");
  }
  void write_backend_key(const std::string& name, const std::string& value) {
    ASSERT_TRUE(rig_.dom0_keys().write(ModelRig::backend_path(kGuest) + "/" + name, value));
  }
  blkfront::Device<ModelPlatform>& connect(VbdOptions options) {
    auto& device = rig_.add_guest(kGuest, options);
    EXPECT_TRUE(rig_.run_until([&] { return device.connected(); })) << device.failure();
    return device;
  }
  int read_last_sectors_of(blkfront::Channel& channel, Sectors capacity, std::byte* buffer) {
    const auto submitted = channel.submit({blkfront::IoOp::read, capacity - Sectors(8), Sectors(8), buffer, nullptr});
    if (!submitted) return submitted.error().code;
    channel.commit();
    blkfront::Completion completion;
    EXPECT_TRUE(rig_.run_until([&] { return channel.reap(0, {&completion, 1}, Nanos(0)) == 1; }));
    return completion.error;
  }

  ModelRig rig_{11};
};

TEST_F(DeviceLife, GrowsAndShrinksWithTheSizeInItsParams) {
  auto& device = connect({.store = "ram:4MiB"});
  auto channel = device.open_channel(0).value();
  auto buffer = device.allocate_buffers(Bytes(kPageSize)).value();
  EXPECT_EQ(read_last_sectors_of(*channel, Sectors(16384), buffer.data()), EINVAL) << "beyond the end of 4 MiB";

  write_backend_key("params", "ram:8MiB");
  ASSERT_TRUE(rig_.run_until([&] { return device.info().capacity == Sectors(16384); }));
  EXPECT_EQ(backend_key("sectors"), "16384");
  EXPECT_EQ(backend_key("state"), "4") << "no reconnect";
  EXPECT_EQ(read_last_sectors_of(*channel, Sectors(16384), buffer.data()), 0);

  write_backend_key("params", "ram:2MiB");
  ASSERT_TRUE(rig_.run_until([&] { return device.info().capacity == Sectors(4096); }));
  EXPECT_EQ(read_last_sectors_of(*channel, Sectors(8192), buffer.data()), EINVAL);
  EXPECT_EQ(read_last_sectors_of(*channel, Sectors(4096), buffer.data()), 0);
  device.free_buffers(buffer);
}

TEST_F(DeviceLife, AParamsKeyThatMakesNoSenseIsReportedAndChangesNothing) {
  auto& device = connect({.store = "ram:4MiB"});
  write_backend_key("params", "ram:lots");
  ASSERT_TRUE(rig_.run_until([&] { return !backend_key("xblk-error").empty(); }));
  EXPECT_THAT(backend_key("xblk-error"), HasSubstr("lots"));
  EXPECT_TRUE(device.connected());
  EXPECT_EQ(device.info().capacity, Sectors(8192));
}

TEST_F(DeviceLife, AnotherStoreInParamsIsOpenedAtTheNextConnect) {
  auto& device = connect({.store = "ram:4MiB"});
  write_backend_key("params", "null:16MiB");
  for (int i = 0; i < 200; ++i) rig_.turn();
  EXPECT_EQ(device.info().capacity, Sectors(8192)) << "nothing changes under a connected frontend";
  ASSERT_TRUE(rig_.dom0_keys().write(ModelRig::frontend_path(kGuest) + "/xblk-policy/reconnect", "1"));
  EXPECT_TRUE(rig_.run_until([&] { return device.connected() && device.info().capacity == Sectors(32768); }));
}

// The parameter is the persistent policy: mappings of the old backend are gone, so grants are mapped anew.
TEST_P(DeviceLife, ABackendThatIsRestartedTakesTheLiveRingsOver) {
  // No data is compared: the store of a process that ends is not the store of the next one.
  auto& device = connect({.store = "null:1GiB",
                          .front_policy = {{"queues", "2"}, {"persistent", GetParam()}},
                          .back_policy = {{"persistent", GetParam()}}});
  auto first = device.open_channel(0).value();
  auto second = device.open_channel(1).value();
  Workload loads[] = {{device, *first, {.length = Sectors(2048)}, 1},
                      {device, *second, {.first = Sectors(2048), .length = Sectors(2048)}, 2}};
  for (int restart = 0; restart < 20; ++restart) {
    SCOPED_TRACE(restart);
    for (std::uint64_t i = 0; i < 50 + rig_.random().below(200); ++i) {
      for (auto& load : loads) load.turn();
      rig_.turn();
    }
    ASSERT_TRUE(rig_.restart_backends());
    EXPECT_EQ(backend_key("state"), "4");
    EXPECT_TRUE(device.connected());
  }
  for (auto& load : loads) {
    load.drain();
    EXPECT_TRUE(rig_.run_until([&] {
      load.turn();
      return load.in_flight() == 0;
    }));
    EXPECT_EQ(load.errors(), 0u);
    EXPECT_GT(load.completed(), 20u);
  }
  EXPECT_EQ(backend_key("xblk-negotiated/persistent"), GetParam());
  device.request_close();
  EXPECT_TRUE(rig_.run_until([&] { return device.closed(); })) << device.failure();
  EXPECT_EQ(rig_.usage().mappings, 0u);
  EXPECT_EQ(rig_.usage().ports, 0u);
}
INSTANTIATE_TEST_SUITE_P(Persistent, DeviceLife, testing::Values("1", "0"),
                         [](const auto& test) { return std::string(test.param) == "1" ? "persistent" : "mapped"; });

TEST_F(DeviceLife, AHaltedRingIsReportedWhereErrorsAreLookedFor) {
  rig_.add_bare_guest(kGuest, {});
  peer::ScriptedFront<ModelPlatform> front(rig_.guest(kGuest), rig_.guest_keys(kGuest),
                                           ModelRig::frontend_path(kGuest));
  ASSERT_TRUE(rig_.run_until([&] { return backend_key("state") == "2"; }));
  front.publish();
  ASSERT_TRUE(rig_.run_until([&] { return backend_key("state") == "4"; }));
  front.set_req_prod(0x80000000);
  ASSERT_TRUE(rig_.run_until([&] { return !backend_key("xblk-error").empty(); }));
  EXPECT_THAT(backend_key("xblk-error"), HasSubstr("queue 0: req_prod ran ahead"));
  rig_.kill_guest(kGuest);
}

}  // namespace
}  // namespace xblk::scenarios
