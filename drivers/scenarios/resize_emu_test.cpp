// Online resize under load: the toolstack writes another size, the backend resizes its store, the frontend sees it.
#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <functional>
#include <string>
#include <thread>

#include "drivers/scenarios/emu_checks.hpp"
#include "drivers/scenarios/emu_rig.hpp"
#include "drivers/scenarios/temporary_disk.hpp"
#include "drivers/scenarios/workload.hpp"

namespace xblk::scenarios {
namespace {

constexpr DomId kGuest{1};
constexpr std::uint64_t kSeed = 50001;
constexpr Sectors kSmall{8192};   // 4 MiB
constexpr Sectors kLarge{32768};  // 16 MiB

// Errno value of an 8-sector write and read back at `sector`: the same bytes, or EILSEQ.
int write_and_read(blkfront::BlockDevice& device, Sectors sector) {
  auto channel = device.open_channel(1).value();
  const auto buffer = device.allocate_buffers(Bytes(kPageSize)).value();
  int error = 0;
  for (const auto op : {blkfront::IoOp::write, blkfront::IoOp::read}) {
    std::fill(buffer.begin(), buffer.end(), op == blkfront::IoOp::write ? std::byte{0x5a} : std::byte{0});
    const auto submitted = channel->submit({op, sector, Sectors(8), buffer.data(), nullptr});
    channel->commit();
    blkfront::Completion completion;
    if (!submitted) {
      error = submitted.error().code;
    } else if (channel->reap(1, {&completion, 1}, seconds(20)) != 1) {
      error = ETIMEDOUT;
    } else {
      error = completion.error;
    }
    if (error != 0) break;
  }
  const bool same = std::all_of(buffer.begin(), buffer.end(), [](std::byte b) { return b == std::byte{0x5a}; });
  device.free_buffers(buffer);
  return error == 0 && !same ? EILSEQ : error;
}

// `store`: what `params` says for a size.
void resize_under_load(const std::function<std::string(Sectors)>& store) {
  EmuRig rig;
  rig.attach(kGuest, {.store = store(kSmall), .front_policy = {{"queues", "2"}}});
  auto device = rig.connect(kGuest);
  ASSERT_TRUE(device) << device.error().message;
  std::atomic<bool> stop{false};
  std::thread io([&] {
    auto channel = (*device)->open_channel(0).value();
    Workload load(**device, *channel, {.length = kSmall - Sectors(64)}, kSeed);
    while (!stop) load.turn();
    load.drain();
    while (load.in_flight() > 0) load.turn();
    EXPECT_GT(load.completed(), 100u);
    EXPECT_EQ(load.mismatches(), 0u);
    EXPECT_EQ(load.errors(), 0u) << load.last_error();
  });
  EXPECT_EQ(write_and_read(**device, kSmall - Sectors(4)), EINVAL) << "half of it beyond the end";
  for (int round = 0; round < 5; ++round) {
    SCOPED_TRACE(round);
    rig.set_store(kGuest, store(kLarge));
    EXPECT_TRUE(eventually([&] { return (*device)->info().capacity == kLarge; })) << rig.log();
    EXPECT_EQ(write_and_read(**device, kLarge - Sectors(8)), 0) << "the new end";
    EXPECT_EQ(write_and_read(**device, kLarge - Sectors(4)), EINVAL);
    rig.set_store(kGuest, store(kSmall));
    EXPECT_TRUE(eventually([&] { return (*device)->info().capacity == kSmall; })) << rig.log();
    EXPECT_EQ(write_and_read(**device, kSmall), EINVAL) << "beyond the new end";
    EXPECT_EQ(write_and_read(**device, kSmall - Sectors(8)), 0);
  }
  stop = true;
  io.join();
  EXPECT_EQ(rig.dom0().read(rig.backend_path(kGuest) + "/sectors").value_or(""), std::to_string(kSmall.value()));
  EXPECT_EQ(rig.dom0().read(rig.backend_path(kGuest) + "/xblk-error").value_or(""), "");
  EXPECT_TRUE((*device)->disconnect());
  device->reset();
  expect_closed_without_leak(rig, kGuest);
}

TEST(ResizeEmu, AMemoryStoreGrowsAndShrinksUnderLoadAndWhatIsInsideStaysIntact) {
  resize_under_load([](Sectors size) { return "ram:" + std::to_string(to_bytes(size).value()); });
}

TEST(ResizeEmu, AFileGrowsAndShrinksUnderLoadAndWhatIsInsideStaysIntact) {
  const TemporaryDisk disk;
  resize_under_load([&](Sectors size) { return disk.store(to_bytes(size)); });
  EXPECT_EQ(std::filesystem::file_size(disk.path()), to_bytes(kSmall).value());
}

}  // namespace
}  // namespace xblk::scenarios
