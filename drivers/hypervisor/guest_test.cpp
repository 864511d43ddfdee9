#include "drivers/hypervisor/guest.hpp"

#include <gtest/gtest.h>

#include <map>
#include <random>

#include "drivers/base/prng.hpp"
#include "drivers/env/virtual/virtual_env.hpp"

namespace xblk::hypervisor {
namespace {

TEST(FrameAllocator, JoinsNeighboursAgain) {
  FrameAllocator frames(10);
  const FrameNumber a = *frames.allocate(3);
  const FrameNumber b = *frames.allocate(3);
  const FrameNumber c = *frames.allocate(4);
  EXPECT_EQ(frames.allocate(1), std::nullopt);
  frames.release(a, 3);
  frames.release(c, 4);
  EXPECT_EQ(frames.allocate(5), std::nullopt) << "seven pages are free, but no five side by side";
  frames.release(b, 3);
  EXPECT_EQ(frames.allocate(10), FrameNumber(0));
}

TEST(FrameAllocator, RandomBlocksNeverOverlapAndAllComeBack) {
  const std::uint64_t seed = std::random_device{}();
  SCOPED_TRACE(::testing::Message() << "seed " << seed);
  Prng random(seed);
  constexpr std::uint32_t kFrames = 200;
  FrameAllocator frames(kFrames);
  std::map<std::uint32_t, std::uint32_t> held;  // first -> count
  for (int step = 0; step < 5'000; ++step) {
    if (random.one_in(2) && !held.empty()) {
      auto it = std::next(held.begin(), static_cast<std::ptrdiff_t>(random.below(held.size())));
      frames.release(FrameNumber(it->first), it->second);
      held.erase(it);
      continue;
    }
    const auto count = static_cast<std::uint32_t>(1 + random.below(20));
    const auto first = frames.allocate(count);
    if (!first) continue;
    const auto [it, inserted] = held.emplace(first->value(), count);
    ASSERT_TRUE(inserted);
    const std::uint32_t free_from = it == held.begin() ? 0 : std::prev(it)->first + std::prev(it)->second;
    const std::uint32_t free_to = std::next(it) == held.end() ? kFrames : std::next(it)->first;
    ASSERT_LE(free_from, first->value());
    ASSERT_LE(first->value() + count, free_to);
  }
  for (const auto& [first, count] : held) frames.release(FrameNumber(first), count);
  EXPECT_EQ(frames.allocate(kFrames), FrameNumber(0));
}

TEST(FrameAllocatorDeathTest, DoubleFreeIsABug) {
  FrameAllocator frames(10);
  const FrameNumber first = *frames.allocate(4);
  frames.release(first, 4);
  EXPECT_DEATH(frames.release(FrameNumber(2), 1), "freed once");
}

TEST(GuestPagesDeathTest, EndingAGrantTwiceIsABug) {
  env::VirtualEnv env;
  auto memory = std::move(*env::VirtualMemory::create("memory", 4));
  auto grants = std::move(*env::VirtualMemory::create("grants", 1));
  GuestPages<env::VirtualEnv> pages(env, DomId(1), memory.base(), 4, grants.base(), 1);
  const GrantRef gref = *pages.grant(kDom0, FrameNumber(0), platform::Access::read_write);
  EXPECT_GE(gref.value(), kReservedGrants);
  EXPECT_TRUE(pages.end_access(gref));
  EXPECT_DEATH(pages.end_access(gref), "ended once");
  EXPECT_DEATH(pages.end_access(GrantRef(kGrantsPerFrame)), "granted reference");
}

}  // namespace
}  // namespace xblk::hypervisor
