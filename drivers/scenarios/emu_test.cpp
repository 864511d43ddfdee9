// The drivers across processes, in real time, on the real xenstored.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "drivers/scenarios/emu_checks.hpp"
#include "drivers/scenarios/emu_rig.hpp"
#include "drivers/scenarios/workload.hpp"

namespace xblk::scenarios {
namespace {

constexpr DomId kGuest{1};
constexpr std::uint64_t kSeed = 20151114;

// One thread per channel, each with its own part of the device.
void run_threads(blkfront::BlockDevice& device, unsigned threads, std::uint64_t ios_each) {
  std::vector<std::thread> running;
  std::atomic<std::uint64_t> mismatches{0}, errors{0};
  for (unsigned t = 0; t < threads; ++t) {
    running.emplace_back([&, t] {
      auto channel = device.open_channel(t).value();
      Workload::Options options;
      options.length = Sectors(8192 / threads);
      options.first = Sectors(t * options.length.value());
      Workload load(device, *channel, options, kSeed + t);
      while (load.completed() < ios_each) load.turn();
      load.drain();
      while (load.in_flight() > 0) load.turn();
      mismatches += load.mismatches();
      errors += load.errors();
    });
  }
  for (auto& thread : running) thread.join();
  EXPECT_EQ(mismatches, 0u);
  EXPECT_EQ(errors, 0u);
}

class EmuDataPath : public testing::TestWithParam<std::tuple<std::string, int>> {};

TEST_P(EmuDataPath, ThreadsVerifyTheirDataOverSharedQueuesAndNothingLeaks) {
  const auto& [path, queues] = GetParam();
  EmuVbd vbd;
  vbd.front_policy["queues"] = std::to_string(queues);
  if (path != "persistent") vbd.back_policy = {{"persistent", "0"}, {"data-path", path}};
  EmuRig rig;
  rig.attach(kGuest, vbd);
  {
    auto device = rig.connect(kGuest);
    ASSERT_TRUE(device) << device.error().message << "\n" << rig.log();
    EXPECT_EQ((*device)->info().negotiated.queues, queues);
    EXPECT_EQ((*device)->info().negotiated.persistent, path == "persistent");
    // More threads than queues: some share a ring and its one leader.
    run_threads(**device, 4, 400);
    EXPECT_TRUE((*device)->disconnect());
  }
  expect_closed_without_leak(rig, kGuest);
  EXPECT_EQ(rig.stop(), 0) << rig.log();
}

INSTANTIATE_TEST_SUITE_P(Paths, EmuDataPath,
                         testing::Combine(testing::Values("persistent", "map", "copy"), testing::Values(1, 2, 4)),
                         [](const auto& test) {
                           return std::get<0>(test.param) + "_q" + std::to_string(std::get<1>(test.param));
                         });

TEST(EmuWaiting, BlockingReapersOnOneRingAllGetTheirCompletions) {
  EmuRig rig;
  rig.attach(kGuest, {.front_policy = {{"polling", "event"}}, .back_policy = {{"polling", "event"}}});
  auto device = rig.connect(kGuest);
  ASSERT_TRUE(device) << device.error().message;
  std::vector<std::thread> threads;
  std::atomic<int> done{0};
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      auto channel = (*device)->open_channel(0).value();
      auto buffer = (*device)->allocate_buffers(Bytes(kPageSize)).value();
      for (int i = 0; i < 200; ++i) {
        while (!channel->submit({blkfront::IoOp::read, Sectors(0), Sectors(8), buffer.data(), nullptr})) {
        }
        channel->commit();
        blkfront::Completion completion;
        ASSERT_EQ(channel->reap(1, {&completion, 1}, kForever), 1u);
        ASSERT_EQ(completion.error, 0);
        ++done;
      }
      (*device)->free_buffers(buffer);
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(done, 800);
}

TEST(EmuReconnect, PoliciesToggledUnderLoadTakeForceWithoutAnErrorOrLostData) {
  EmuRig rig;
  rig.attach(kGuest, {});
  auto device = rig.connect(kGuest);
  ASSERT_TRUE(device) << device.error().message;
  std::atomic<bool> stop{false};
  std::thread io([&] {
    auto channel = (*device)->open_channel(0).value();
    Workload load(**device, *channel, {}, kSeed);
    while (!stop) load.turn();
    load.drain();
    while (load.in_flight() > 0) load.turn();
    EXPECT_EQ(load.mismatches(), 0u);
    EXPECT_EQ(load.errors(), 0u);
  });
  int reconnects = 0;
  for (const auto& [persistent, queues] : {std::pair{"0", "2"}, {"1", "3"}, {"0", "1"}, {"1", "4"}}) {
    rig.set_policies(kGuest, {.front_policy = {{"persistent", persistent}, {"queues", queues}},
                              .back_policy = {{"persistent", persistent}}});
    ASSERT_TRUE(rig.dom0().write(rig.frontend_path(kGuest) + "/xblk-policy/reconnect", std::to_string(++reconnects)));
    EXPECT_TRUE(eventually([&] {
      return rig.dom0().read(rig.backend_path(kGuest) + "/xblk-negotiated/queues").value_or("") == queues &&
             rig.dom0().read(rig.backend_path(kGuest) + "/xblk-negotiated/persistent").value_or("") == persistent &&
             rig.dom0().read(rig.frontend_path(kGuest) + "/state").value_or("") == "4";
    })) << "reconnect "
        << reconnects << ": " << rig.log();
  }
  stop = true;
  io.join();
}

// A guest process that is killed in mid-request, at different moments.
TEST(EmuDeath, KilledGuestsLeaveNothingAndTheNextOneConnects) {
  EmuRig rig;
  rig.attach(kGuest, {.front_policy = {{"queues", "2"}}});
  for (int round = 0; round < 6; ++round) {
    int started[2];
    ASSERT_EQ(::pipe(started), 0);
    const pid_t guest = ::fork();
    if (guest == 0) {
      auto device = rig.connect(kGuest);
      if (!device) ::_exit(1);
      auto channel = (*device)->open_channel(0).value();
      Workload load(**device, *channel, {}, kSeed);
      if (::write(started[1], "x", 1) != 1) ::_exit(1);
      for (;;) load.turn();
    }
    char byte = 0;
    ::close(started[1]);
    ASSERT_EQ(::read(started[0], &byte, 1), 1) << rig.log();
    ::close(started[0]);
    std::this_thread::sleep_for(std::chrono::milliseconds(5 * round));
    ::kill(guest, SIGKILL);
    ::waitpid(guest, nullptr, 0);
    expect_closed_without_leak(rig, kGuest);
  }
  auto device = rig.connect(kGuest);
  ASSERT_TRUE(device) << device.error().message;
  // Beside the sectors that the killed ones wrote.
  auto channel = (*device)->open_channel(0).value();
  Workload load(**device, *channel, {.first = Sectors(4096)}, kSeed);
  while (load.completed() < 100) load.turn();
  load.drain();
  while (load.in_flight() > 0) load.turn();
  EXPECT_EQ(load.mismatches() + load.errors(), 0u);
}

TEST(EmuDeath, ALostHostFailsIoWithEnodevInsteadOfHanging) {
  EmuRig rig;
  rig.attach(kGuest, {});
  auto device = rig.connect(kGuest);
  ASSERT_TRUE(device) << device.error().message;
  auto channel = (*device)->open_channel(0).value();
  auto buffer = (*device)->allocate_buffers(Bytes(kPageSize)).value();
  ::kill(rig.host_pid(), SIGKILL);
  EXPECT_TRUE(eventually([&] {
    if (const auto status = channel->submit({blkfront::IoOp::read, Sectors(0), Sectors(8), buffer.data(), nullptr});
        !status) {
      return status.error().code == ENODEV;
    }
    channel->commit();
    blkfront::Completion completion;
    return channel->reap(1, {&completion, 1}, seconds(1)) == 1 && completion.error == ENODEV;
  }));
}

TEST(EmuOpen, SaysWhatIsMissing) {
  EmuRig rig;
  auto no_vbd = rig.connect(kGuest);
  ASSERT_FALSE(no_vbd);
  EXPECT_NE(no_vbd.error().message.find("device/vbd/51712"), std::string::npos) << no_vbd.error().message;
  rig.attach(kGuest, {.store = "ram:nonsense"});
  auto options = rig.options(kGuest);
  options.connect_timeout = millis(500);
  auto bad_store = apps::EmuFrontend::open(options);
  ASSERT_FALSE(bad_store);
  EXPECT_NE(bad_store.error().message.find("ram:nonsense"), std::string::npos) << bad_store.error().message;
  options.hypervisor_socket = "/nowhere.sock";
  auto no_host = apps::EmuFrontend::open(options);
  ASSERT_FALSE(no_host);
  EXPECT_NE(no_host.error().message.find("/nowhere.sock"), std::string::npos) << no_host.error().message;
}

}  // namespace
}  // namespace xblk::scenarios
