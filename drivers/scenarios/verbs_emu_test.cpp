// The requests besides read and write, end to end: barriers, discards and secure discards.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "drivers/scenarios/emu_checks.hpp"
#include "drivers/scenarios/emu_rig.hpp"
#include "drivers/scenarios/temporary_disk.hpp"
#include "drivers/scenarios/workload.hpp"

namespace xblk::scenarios {
namespace {

using blkfront::IoOp;

constexpr DomId kGuest{1};
constexpr std::uint64_t kSeed = 60001;
constexpr Bytes kSize{4 << 20};
constexpr std::byte kMark{0x5a};

// One I/O at a time on one channel; returns its errno value.
class OneByOne {
 public:
  OneByOne(blkfront::BlockDevice& device, unsigned queue)
      : channel_(device.open_channel(queue).value()), memory_(device.allocate_buffers(Bytes(64 << 10)).value()) {}

  int run(blkfront::Io io) {
    io.buffer = memory_.data();
    if (const auto submitted = channel_->submit(io); !submitted) return submitted.error().code;
    channel_->commit();
    blkfront::Completion completion;
    return channel_->reap(1, {&completion, 1}, seconds(20)) == 1 ? completion.error : ETIMEDOUT;
  }
  [[nodiscard]] std::span<std::byte> memory() { return memory_; }

 private:
  std::unique_ptr<blkfront::Channel> channel_;
  std::span<std::byte> memory_;
};

bool all_are(std::span<const std::byte> bytes, std::byte value) {
  return std::all_of(bytes.begin(), bytes.end(), [value](std::byte b) { return b == value; });
}

// Each barrier drains the three rings, on two of which the others do not stop working.
TEST(VerbsEmu, BarriersDrainAllRingsUnderLoadAndTheirDataIsThere) {
  constexpr std::uint64_t kBarriers = 200;
  EmuRig rig;
  rig.attach(kGuest, {.store = "ram:4MiB", .front_policy = {{"queues", "3"}}});
  auto device = rig.connect(kGuest);
  ASSERT_TRUE(device) << device.error().message;
  ASSERT_TRUE((*device)->info().negotiated.barrier);
  std::atomic<bool> stop{false};
  std::vector<std::thread> others;
  for (unsigned q = 1; q <= 2; ++q) {
    others.emplace_back([&, q] {
      auto channel = (*device)->open_channel(q).value();
      Workload load(**device, *channel, {.first = Sectors(q * 1024), .length = Sectors(1024), .barriers = false},
                    kSeed + q);
      while (!stop) load.turn();
      load.drain();
      while (load.in_flight() > 0) load.turn();
      EXPECT_GT(load.completed(), 0u);
      EXPECT_EQ(load.mismatches() + load.errors(), 0u);
    });
  }
  {
    OneByOne io(**device, 0);
    for (std::uint64_t i = 0; i < kBarriers; ++i) {
      const Sectors place(i % 8 * 64);
      std::fill(io.memory().begin(), io.memory().end(), std::byte(i));
      ASSERT_EQ(io.run({.op = IoOp::barrier, .sector = place, .count = Sectors(64)}), 0);
      std::fill(io.memory().begin(), io.memory().end(), ~std::byte(i));
      ASSERT_EQ(io.run({.op = IoOp::read, .sector = place, .count = Sectors(64)}), 0);
      ASSERT_TRUE(all_are(io.memory().first(std::size_t{64} * kSectorSize), std::byte(i))) << i;
    }
  }
  stop = true;
  for (auto& other : others) other.join();
  EXPECT_TRUE((*device)->disconnect());
  device->reset();
  expect_closed_without_leak(rig, kGuest);
  // 32 KiB fit one direct request, and a barrier is never indirect.
  EXPECT_EQ(backend_sample(rig, kGuest).get(Counter::barrier_drains), kBarriers);
}

TEST(VerbsEmu, WhatIsDiscardedOfAFileIsGoneFromTheFileAndWhatSurroundsItIsNot) {
  const TemporaryDisk disk;
  EmuRig rig;
  rig.attach(kGuest, {.store = disk.store(kSize)});
  auto device = rig.connect(kGuest);
  ASSERT_TRUE(device) << device.error().message;
  const auto offered = (*device)->info().negotiated;
  ASSERT_TRUE(offered.discard) << "the file system of the test knows holes";
  EXPECT_FALSE(offered.discard_secure) << "what a file system does with freed blocks is not known";
  {
    OneByOne io(**device, 0);
    std::fill(io.memory().begin(), io.memory().end(), kMark);
    for (std::uint64_t sector = 0; sector < 1024; sector += 128) {
      ASSERT_EQ(io.run({.op = IoOp::write, .sector = Sectors(sector), .count = Sectors(128)}), 0);
    }
    EXPECT_EQ(io.run({.op = IoOp::discard, .sector = Sectors(256), .count = Sectors(512), .secure = true}), EOPNOTSUPP);
    EXPECT_EQ(io.run({.op = IoOp::discard, .sector = Sectors(257), .count = Sectors(8)}), EINVAL) << "no whole block";
    ASSERT_EQ(io.run({.op = IoOp::flush}), 0);
    struct stat before {};
    ASSERT_EQ(::stat(disk.path().c_str(), &before), 0);
    ASSERT_EQ(io.run({.op = IoOp::discard, .sector = Sectors(256), .count = Sectors(512)}), 0);
    struct stat after {};
    ASSERT_EQ(::stat(disk.path().c_str(), &after), 0);
    EXPECT_EQ(before.st_blocks - after.st_blocks, 512) << "its blocks are given back";
  }
  std::vector<std::byte> content(std::size_t{1024} * kSectorSize);
  std::ifstream(disk.path(), std::ios::binary)
      .read(reinterpret_cast<char*>(content.data()), static_cast<std::streamsize>(content.size()));
  const auto part = [&](std::size_t first, std::size_t count) {
    return std::span(content).subspan(first * kSectorSize, count * kSectorSize);
  };
  EXPECT_TRUE(all_are(part(0, 256), kMark));
  EXPECT_TRUE(all_are(part(256, 512), std::byte{0}));
  EXPECT_TRUE(all_are(part(768, 256), kMark));
}

TEST(VerbsEmu, ASecureDiscardOfMemoryLeavesZerosAndIsOfferedOnlyIfItsPolicySaysSo) {
  EmuRig rig;
  rig.attach(kGuest, {.store = "ram:4MiB"});
  for (const char* policy : {"secure", "on", "off"}) {
    SCOPED_TRACE(policy);
    rig.set_policies(kGuest, {.back_policy = {{"discard", policy}}});
    auto device = rig.connect(kGuest);
    ASSERT_TRUE(device) << device.error().message;
    OneByOne io(**device, 0);
    std::fill(io.memory().begin(), io.memory().end(), kMark);
    ASSERT_EQ(io.run({.op = IoOp::write, .sector = Sectors(0), .count = Sectors(128)}), 0);
    const bool offered = std::string(policy) == "secure";
    EXPECT_EQ(io.run({.op = IoOp::discard, .sector = Sectors(3), .count = Sectors(100), .secure = true}),
              offered ? 0 : EOPNOTSUPP);
    ASSERT_EQ(io.run({.op = IoOp::read, .sector = Sectors(0), .count = Sectors(128)}), 0);
    EXPECT_TRUE(all_are(io.memory().first(3 * kSectorSize), kMark));
    EXPECT_TRUE(all_are(io.memory().subspan(3 * kSectorSize, 100 * kSectorSize), offered ? std::byte{0} : kMark));
    EXPECT_TRUE(all_are(io.memory().subspan(103 * kSectorSize), kMark));
  }
}

}  // namespace
}  // namespace xblk::scenarios
