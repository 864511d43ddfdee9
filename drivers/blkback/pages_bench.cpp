// What the grant side of the backend costs per page: finding a persistent grant, by structure and pool size, and
// reaching a request's pages by each data path, over the real emulated grant table. One operation = one page.
#include <benchmark/benchmark.h>

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "drivers/base/counters.hpp"
#include "drivers/base/prng.hpp"
#include "drivers/blkback/granted_pages.hpp"
#include "drivers/blkback/page_options.hpp"
#include "drivers/blkback/persistent_pool.hpp"
#include "drivers/blkback/pools.hpp"
#include "drivers/env/real/real_env.hpp"
#include "drivers/env/virtual/memory_store.hpp"
#include "drivers/hypervisor/dom0.hpp"
#include "drivers/hypervisor/in_process_guest.hpp"

namespace xblk::blkback {
namespace {

using env::RealEnv;

constexpr DomId kGuest{1};
constexpr std::uint32_t kFirstGref = 8;
constexpr std::uint64_t kSeed = 20121030;

struct EmulatedPlatform {
  using Env = RealEnv;
  using Front = hypervisor::InProcessGuest<RealEnv>;
  using Back = hypervisor::Dom0<RealEnv>;
  using Keys = env::MemoryKeys;
};

// ---- lookup ---------------------------------------------------------------------------------------------------------

PageOptions persistent_options(blkif::Lookup lookup) {
  PageOptions options;
  options.path = DataPath::persistent;
  options.max_persistent_grants = 1u << 20;
  options.lookup = lookup;
  return options;
}

// Filled with `size` grants; which are looked up, and in which order, is drawn.
struct LookupRig {
  LookupRig(blkif::Lookup lookup, std::uint32_t size, bool shared) : pool(env, persistent_options(lookup), shared) {
    for (std::uint32_t i = 0; i < size; ++i) {
      PersistentGrant* grant = pool.insert_pinned(GrantRef(kFirstGref + i), MapHandle(i), page, steps, wait);
      pool.unpin(*grant, Instant(), wait);
    }
    steps = 0;
    Prng random(kSeed);
    for (auto& gref : order) gref = GrantRef(kFirstGref + static_cast<std::uint32_t>(random.below(size)));
  }
  ~LookupRig() { (void)pool.take_all(); }

  RealEnv env;
  PersistentPool<RealEnv> pool;
  platform::LockWait wait;
  std::uint64_t steps = 0;
  std::array<GrantRef, 1024> order;
  alignas(kPageSize) std::byte page[kPageSize];  // stands for all
};

void report_steps(benchmark::State& state, std::uint64_t steps) {
  state.SetItemsProcessed(state.iterations());
  state.counters["steps"] = static_cast<double>(steps) / static_cast<double>(state.iterations());
}

// range(0): blkif::Lookup; range(1): grants in the pool; range(2): whether its lock is taken.
void lookup_hit(benchmark::State& state) {
  const auto rig = std::make_unique<LookupRig>(static_cast<blkif::Lookup>(state.range(0)),
                                               static_cast<std::uint32_t>(state.range(1)), state.range(2) != 0);
  std::size_t next = 0;
  for (auto _ : state) {
    PersistentGrant* grant = rig->pool.pin(rig->order[next++ % rig->order.size()], rig->steps, rig->wait);
    rig->pool.unpin(*grant, Instant(), rig->wait);
  }
  report_steps(state, rig->steps);
}

void lookup_miss(benchmark::State& state) {
  const auto size = static_cast<std::uint32_t>(state.range(1));
  const auto rig = std::make_unique<LookupRig>(static_cast<blkif::Lookup>(state.range(0)), size, false);
  for (auto _ : state) {
    benchmark::DoNotOptimize(rig->pool.pin(GrantRef(kFirstGref + size), rig->steps, rig->wait));
  }
  report_steps(state, rig->steps);
}

constexpr auto kList = static_cast<std::int64_t>(blkif::Lookup::list);
constexpr auto kTree = static_cast<std::int64_t>(blkif::Lookup::tree);
constexpr auto kArray = static_cast<std::int64_t>(blkif::Lookup::array);

BENCHMARK(lookup_hit)
    ->ArgNames({"lookup", "grants", "lock"})
    ->ArgsProduct({{kList, kTree, kArray}, {352, 1056, 16896}, {0}})
    ->ArgsProduct({{kArray}, {1056}, {1}});
BENCHMARK(lookup_miss)->ArgNames({"lookup", "grants"})->ArgsProduct({{kList, kTree, kArray}, {352, 1056, 16896}});

// ---- data paths -----------------------------------------------------------------------------------------------------

struct PathRig {
  static constexpr std::uint32_t kPages = 1024;

  PathRig(const PageOptions& options, bool shared)
      : pools(env, options, shared), pages(dom0, {kGuest, options}, pools, counters) {
    guest = hypervisor::InProcessGuest<RealEnv>::create(hypervisor, kGuest, kPages).value();
    block = guest->allocate_pages(kDom0, kPages).value();
    // In no order, as a guest's page cache has them.
    std::vector<std::uint32_t> frames(kPages);
    for (std::uint32_t i = 0; i < kPages; ++i) frames[i] = block.first_frame.value() + i;
    Prng random(kSeed);
    for (std::uint32_t i = kPages; i > 1; --i) std::swap(frames[i - 1], frames[random.below(i)]);
    for (const std::uint32_t frame : frames) {
      const GrantRef gref = guest->grant(kDom0, FrameNumber(frame), platform::Access::read_write).value();
      segments.push_back({gref, 0, kSectorsPerPage - 1});
    }
  }
  ~PathRig() { pages.drop_pools(); }

  RealEnv env;
  hypervisor::Hypervisor<RealEnv> hypervisor{env};
  hypervisor::Dom0<RealEnv> dom0{hypervisor};
  std::unique_ptr<hypervisor::InProcessGuest<RealEnv>> guest;
  platform::PageBlock block;
  QueueCounters counters;
  Pools<RealEnv> pools;
  GrantedPages<EmulatedPlatform> pages;
  std::vector<blkif::Segment> segments;
};

// A ring at depth 64: the oldest of 64 requests is released, a new one acquired; a round ends every 32 requests.
void acquire_release(benchmark::State& state, const PageOptions& options, bool to_frontend, bool shared = false) {
  const auto rig = std::make_unique<PathRig>(options, shared);
  const auto per_request = static_cast<std::size_t>(state.range(0));
  constexpr std::size_t kDepth = 64;
  constexpr std::size_t kRound = 32;
  std::array<HeldPages, kDepth> held;
  std::size_t next = 0;
  std::size_t n = 0;
  const auto acquire = [&](HeldPages& into) {
    if (next + per_request > rig->segments.size()) next = 0;
    const auto segments = std::span(rig->segments).subspan(next, per_request);
    next += per_request;
    if (!rig->pages.acquire(segments, to_frontend, into)) state.SkipWithError("acquire failed");
  };
  for (auto& pages : held) acquire(pages);
  for (auto _ : state) {
    rig->pages.release(to_frontend, held[n % kDepth]);
    acquire(held[n % kDepth]);
    if (++n % kRound == 0) rig->pages.flush_unmaps();
  }
  for (auto& pages : held) rig->pages.release(to_frontend, pages);
  rig->pages.flush_unmaps();
  state.SetItemsProcessed(state.iterations() * state.range(0));
}

PageOptions path(DataPath p) {
  PageOptions options = persistent_options(blkif::Lookup::array);
  options.path = p;
  options.hybrid_threshold = Bytes(16384);
  options.unmap_batch = 32;
  options.max_free_pages = 1024;
  return options;
}
PageOptions unmapping_per_request() {
  PageOptions options = path(DataPath::map);
  options.unmap_batch = 1;
  return options;
}
PageOptions copying_without_pool() {
  PageOptions options = path(DataPath::copy);
  options.max_free_pages = 0;
  return options;
}

constexpr bool kRead = true;  // the store writes, the frontend reads
constexpr bool kWrite = false;

void pages_of_a_request(benchmark::internal::Benchmark* bench) {
  bench->ArgName("pages")->Arg(1)->Arg(11);
}
BENCHMARK_CAPTURE(acquire_release, persistent, path(DataPath::persistent), kRead)->Apply(pages_of_a_request);
BENCHMARK_CAPTURE(acquire_release, persistent_shared_pool, path(DataPath::persistent), kRead, true)
    ->Apply(pages_of_a_request);
BENCHMARK_CAPTURE(acquire_release, copy_read, path(DataPath::copy), kRead)->Apply(pages_of_a_request);
BENCHMARK_CAPTURE(acquire_release, copy_write, path(DataPath::copy), kWrite)->Apply(pages_of_a_request);
BENCHMARK_CAPTURE(acquire_release, copy_read_no_pool, copying_without_pool(), kRead)->Apply(pages_of_a_request);
BENCHMARK_CAPTURE(acquire_release, hybrid_read, path(DataPath::hybrid), kRead)->Apply(pages_of_a_request);
BENCHMARK_CAPTURE(acquire_release, map_read, path(DataPath::map), kRead)->Apply(pages_of_a_request);
BENCHMARK_CAPTURE(acquire_release, map_write, path(DataPath::map), kWrite)->Apply(pages_of_a_request);
BENCHMARK_CAPTURE(acquire_release, map_read_unmap_batch_1, unmapping_per_request(), kRead)->Apply(pages_of_a_request);

}  // namespace
}  // namespace xblk::blkback
