// Limits met on purpose: mappings, grant frames, xenstored's quotas, open files. Each degrades as designed, says so in
// one line, and costs no other device anything.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string>
#include <thread>

#include "drivers/keystore/client.hpp"
#include "drivers/scenarios/emu_checks.hpp"
#include "drivers/scenarios/emu_rig.hpp"
#include "drivers/scenarios/guest_process.hpp"

namespace xblk::scenarios {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr DomId kGuest{1};
constexpr DomId kOther{2};
constexpr std::uint64_t kSeed = 30001;
constexpr Sectors kPart{4096};  // of the device, for one guest after another: each expects to find zeros

// A host with two guests, the second of which works all the time and must never notice anything.
class CapacityEmu : public testing::Test {
 protected:
  void start(const EmuHostSetup& setup) {
    rig_ = std::make_unique<EmuRig>(setup);
    rig_->attach(kGuest, {});
    rig_->attach(kOther, {});
    other_ = std::make_unique<GuestProcess>(
        life_under_load(*rig_, kOther, {.seed = kSeed, .pause = std::chrono::milliseconds(1)}));
    ASSERT_TRUE(other_->wait_until_ready()) << other_->stop() << rig_->log();
  }
  void TearDown() override {
    EXPECT_EQ(other_->stop(), "") << "the other device";
    EXPECT_EQ(rig_->stop(), 0);
    EXPECT_EQ(rig_->log().find("bug:"), std::string::npos) << rig_->log();
  }

  // The guest works under load for a moment, in a process of its own; its report.
  std::string work(const GuestLoad& load) {
    GuestProcess guest(life_under_load(*rig_, kGuest, load));
    if (!guest.wait_until_ready()) return "not ready: " + guest.stop();
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    return guest.stop();
  }
  // Why the guest cannot connect.
  std::string refusal() {
    auto options = rig_->options(kGuest);
    options.connect_timeout = seconds(2);
    const auto device = apps::EmuFrontend::open(options);
    return device ? "connected" : device.error().message;
  }
  // A backend that waits for a frontend offers it before this returns; one that has closed, when it opens again.
  void ask(const blkif::PolicyMap& front, const blkif::PolicyMap& back) {
    rig_->set_policies(kGuest, {.front_policy = front, .back_policy = back});
    if (!back.contains("queues")) return;
    const auto read = [&](const char* key) {
      return rig_->dom0().read(rig_->backend_path(kGuest) + "/" + key).value_or("");
    };
    EXPECT_TRUE(
        eventually([&] { return read("state") != "2" || read("multi-queue-max-queues") == back.at("queues"); }));
  }
  std::string frontend_error() { return rig_->dom0().read(rig_->frontend_path(kGuest) + "/xblk-error").value_or(""); }

  std::unique_ptr<EmuRig> rig_;
  std::unique_ptr<GuestProcess> other_;
};

// As when vm.max_map_count or maptrack is used up (XSA-300), without touching the machine's setting. 40: the rings, and
// a few pages of data.
TEST_F(CapacityEmu, WithoutMappingsLeftPagesAreCopiedAndTheLogSaysSo) {
  start({.guests = 2, .options = {"--max-mappings", "40"}});
  Sectors part{};
  for (const char* persistent : {"1", "0"}) {
    SCOPED_TRACE(std::string("persistent ") + persistent);
    ask({{"queues", "2"}}, {{"persistent", persistent}});
    const QueueSample before = backend_sample(*rig_, kGuest);
    EXPECT_EQ(work({.channels = 2, .first = part, .length = kPart, .seed = kSeed}), "");
    part += kPart;
    expect_closed_without_leak(*rig_, kGuest);
    const QueueSample after = backend_sample(*rig_, kGuest);
    EXPECT_GT(after.get(Counter::map_capacity_errors), before.get(Counter::map_capacity_errors));
    EXPECT_GT(after.get(Counter::copies), before.get(Counter::copies));
    EXPECT_EQ(after.get(Counter::responses_error), before.get(Counter::responses_error));
  }
  EXPECT_THAT(rig_->log(), HasSubstr("backend/xblk/1/51712: no mapping capacity left (vm.max_map_count"));
}

TEST_F(CapacityEmu, RingsThatCannotBeMappedAreRefusedWithTheReason) {
  start({.guests = 2, .options = {"--max-mappings", "40"}});
  ask({{"queues", "4"}, {"ring-page-order", "4"}}, {});
  EXPECT_THAT(refusal(), AllOf(HasSubstr("map a ring of 16 pages of domain 1"), HasSubstr("all 40 mappings"),
                               HasSubstr("vm.max_map_count")));
  ask({{"queues", "1"}, {"ring-page-order", "0"}}, {});
  EXPECT_EQ(work({.seed = kSeed}), "") << "a smaller device still fits";
}

// One frame holds 512 grants, 8 of them reserved; the pool of a queue wants up to 1,056.
TEST_F(CapacityEmu, WithoutGrantsLeftRequestsWaitForThoseInFlight) {
  start({.guests = 2, .options = {"--max-grant-frames", "1"}});
  Sectors part{};
  for (const char* persistent : {"1", "0"}) {
    SCOPED_TRACE(std::string("persistent ") + persistent);
    ask({{"persistent", persistent}, {"indirect-segments", "256"}}, {});
    EXPECT_EQ(work({.first = part, .length = kPart, .depth = 128, .seed = kSeed}), "");
    part += kPart;
    EXPECT_GT(frontend_sample(*rig_, kGuest).get(Counter::ring_full_stalls), 0u);
  }
}

TEST_F(CapacityEmu, RingsThatCannotBeGrantedAreRefusedWithTheReason) {
  start({.guests = 2, .options = {"--max-grant-frames", "1", "--guest-memory", "8192"}});
  ask({{"queues", "40"}, {"ring-page-order", "4"}}, {{"queues", "40"}});
  EXPECT_THAT(refusal(), AllOf(HasSubstr("grant of a ring page"), HasSubstr("grant table full"),
                               HasSubstr("raise its limit of grant frames")));
  EXPECT_THAT(frontend_error(), HasSubstr("grant table full"));
  ask({{"queues", "1"}, {"ring-page-order", "0"}}, {{"queues", "4"}});
  EXPECT_EQ(work({.seed = kSeed}), "") << "a smaller device still fits";
}

// 1000 nodes of a domain, by default. 64 queues of 16 pages are 1,151 keys.
TEST_F(CapacityEmu, MoreQueuesThanXenstoredHasNodesForAreRefusedWithTheReason) {
  start({.guests = 2, .options = {"--guest-memory", "8192"}});
  ask({{"queues", "64"}, {"ring-page-order", "4"}}, {{"queues", "64"}});
  EXPECT_THAT(refusal(), HasSubstr("the domain's quota in xenstored is used up"));
  ask({{"queues", "1"}, {"ring-page-order", "0"}}, {});
  EXPECT_EQ(work({.seed = kSeed}), "") << "nothing of the refused offer is left to fill the quota";
}

TEST_F(CapacityEmu, AValueThatIsLargerThanXenstoredAllowsIsRefusedWithTheReason) {
  start({.guests = 2});
  auto keys = keystore::Client::connect(rig_->options(kGuest).xenstore_socket);
  ASSERT_TRUE(keys) << keys.error().message;
  const auto written = keys->write("device/vbd/51712/large", std::string(3000, 'x'));
  ASSERT_FALSE(written);
  EXPECT_THAT(written.error().message, HasSubstr("quota in xenstored is used up (number of nodes, or size of one)"));
}

TEST_F(CapacityEmu, AGuestWithoutWatchesLeftIsRefusedWithTheReasonAndConnectsWhenItHasSomeAgain) {
  start({.guests = 2});
  {
    auto hoarder = keystore::Client::connect(rig_->options(kGuest).xenstore_socket);
    ASSERT_TRUE(hoarder) << hoarder.error().message;
    Status watched;
    int watches = 0;
    for (; watched && watches < 1000; ++watches) watched = hoarder->watch("device", std::to_string(watches));
    EXPECT_LE(watches, 130) << "128 are the default quota";
    EXPECT_THAT(refusal(), HasSubstr("the domain has as many watches as xenstored allows it"));
  }
  EXPECT_EQ(work({.seed = kSeed}), "");
}

// What 40 queues need of descriptors does not fit; what the devices that work hold is not touched.
TEST_F(CapacityEmu, AHostWithoutDescriptorsLeftRefusesADeviceWithTheReason) {
  start({.guests = 2, .descriptors_max = 150});
  ask({{"queues", "40"}}, {{"queues", "40"}});
  EXPECT_THAT(refusal(), AllOf(HasSubstr("Too many open files"), HasSubstr("limit of open files")));
  ask({{"queues", "1"}}, {{"queues", "4"}});
  EXPECT_EQ(work({.seed = kSeed}), "") << "a smaller device still fits";
}

}  // namespace
}  // namespace xblk::scenarios
