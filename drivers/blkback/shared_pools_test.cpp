// Rings of one device on several workers, which share the pools, over the real emulated grant table: whatever they do
// at once, each request sees its own pages, and nothing is left at the end.
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "drivers/base/prng.hpp"
#include "drivers/blkback/granted_pages.hpp"
#include "drivers/blkback/pools.hpp"
#include "drivers/env/real/real_env.hpp"
#include "drivers/env/virtual/memory_store.hpp"
#include "drivers/hypervisor/dom0.hpp"
#include "drivers/hypervisor/in_process_guest.hpp"

namespace xblk::blkback {
namespace {

using env::RealEnv;

struct EmulatedPlatform {
  using Env = RealEnv;
  using Front = hypervisor::InProcessGuest<RealEnv>;
  using Back = hypervisor::Dom0<RealEnv>;
  using Keys = env::MemoryKeys;
};
using Pages = GrantedPages<EmulatedPlatform>;

constexpr DomId kGuest{1};
constexpr std::uint32_t kPages = 64;

class SharedPools : public testing::TestWithParam<DataPath> {
 protected:
  SharedPools() {
    for (std::uint32_t i = 0; i < kPages; ++i) {
      std::memset(block_.address + i * kPageSize, static_cast<int>(i), kPageSize);
      const FrameNumber frame(block_.first_frame.value() + i);
      segments_.push_back({guest_->grant(kDom0, frame, platform::Access::read_write).value(), 0, 7});
    }
  }
  // Writes of the frontend, so that all workers only read the pages; several requests at once.
  void work(Pages& pages, std::uint64_t seed) {
    Prng random(seed);
    std::array<HeldPages, 4> held;
    std::array<std::vector<blkif::Segment>, 4> requests;
    for (int i = 0; i < 2000; ++i) {
      const std::size_t slot = random.below(held.size());
      if (!requests[slot].empty()) pages.release(false, held[slot]);
      requests[slot].clear();
      for (std::uint64_t n = random.below(11) + 1; n > 0; --n) {
        requests[slot].push_back(segments_[random.below(segments_.size())]);
      }
      ASSERT_TRUE(pages.acquire(requests[slot], false, held[slot]));
      for (std::size_t n = 0; n < requests[slot].size(); ++n) {
        const std::uint32_t page = requests[slot][n].gref.value() - segments_[0].gref.value();
        ASSERT_EQ(*held[slot].pieces()[n].address, static_cast<std::byte>(page));
      }
      if (random.one_in(8)) pages.flush_unmaps();
      if (random.one_in(8)) pages.maintain(env_.now());
    }
    for (std::size_t slot = 0; slot < held.size(); ++slot) pages.release(false, held[slot]);
    pages.flush_unmaps();
  }

  RealEnv env_;
  hypervisor::Hypervisor<RealEnv> hypervisor_{env_};
  hypervisor::Dom0<RealEnv> dom0_{hypervisor_};
  std::unique_ptr<hypervisor::InProcessGuest<RealEnv>> guest_ =
      hypervisor::InProcessGuest<RealEnv>::create(hypervisor_, kGuest, kPages).value();
  platform::PageBlock block_ = guest_->allocate_pages(kDom0, kPages).value();
  std::vector<blkif::Segment> segments_;
};

TEST_P(SharedPools, ServeAllRingsAtOnce) {
  constexpr std::uint64_t kSeed = 20151111;
  constexpr std::size_t kRings = 3;
  SCOPED_TRACE("seed " + std::to_string(kSeed));
  PageOptions options;
  options.path = GetParam();
  options.hybrid_threshold = Bytes(4 * kPageSize);
  options.max_persistent_grants = kPages / 2;
  options.purge = blkif::Purge::lru;
  options.unused_limit = micros(50);
  options.max_free_pages = 16;
  options.unmap_batch = 8;
  Pools<RealEnv> pools(env_, options, /*shared=*/true);
  std::array<QueueCounters, kRings> counters;
  std::vector<std::unique_ptr<Pages>> rings;
  for (auto& of_ring : counters) {
    rings.push_back(std::make_unique<Pages>(dom0_, Pages::Config{kGuest, options}, pools, of_ring));
  }
  std::vector<std::thread> workers;
  for (std::size_t r = 0; r < kRings; ++r) workers.emplace_back([&, r] { work(*rings[r], kSeed + r); });
  for (auto& worker : workers) worker.join();
  EXPECT_EQ(pools.persistent.pinned(), 0u);
  for (auto& ring : rings) ring->drop_pools();
  EXPECT_EQ(hypervisor_.usage(), hypervisor::HypervisorUsage{.domains = 1});
  std::uint64_t maps = 0;
  std::uint64_t unmaps = 0;
  for (const auto& of_ring : counters) {
    maps += of_ring.get(Counter::maps);
    unmaps += of_ring.get(Counter::unmaps);
    EXPECT_EQ(of_ring.get(Counter::map_errors), 0u);
  }
  EXPECT_EQ(maps, unmaps);
  EXPECT_EQ(maps > 0, GetParam() != DataPath::copy);
}

constexpr std::array kPaths = {DataPath::persistent, DataPath::map, DataPath::copy, DataPath::hybrid};
constexpr std::array kPathNames = {"persistent", "map", "copy", "hybrid"};
INSTANTIATE_TEST_SUITE_P(Paths, SharedPools, testing::ValuesIn(kPaths), [](const auto& test) {
  return std::string(kPathNames[static_cast<std::size_t>(test.param)]);
});

}  // namespace
}  // namespace xblk::blkback
