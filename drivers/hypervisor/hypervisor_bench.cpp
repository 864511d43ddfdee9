// What the grant operations cost on this machine, per lock policy and number of dom0 threads. One operation = one page;
// the threads share one guest, so that its table and dom0's maptrack are contended as by the queues of one device.
//
// Seed 002 compared the two lock policies on 24 disks and many more CPUs. What its split gains shows only where threads
// really run at once, so each result is labelled with the number of CPUs, and no figure of this file is gated.
#include <benchmark/benchmark.h>

#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "drivers/env/real/real_env.hpp"
#include "drivers/hypervisor/dom0.hpp"
#include "drivers/hypervisor/hypervisor.hpp"
#include "drivers/hypervisor/in_process_guest.hpp"

namespace xblk::hypervisor {
namespace {

using env::RealEnv;
using platform::Access;

constexpr std::uint32_t kPages = 1024;

struct Rig {
  explicit Rig(GrantLocks locks) : hypervisor(env, {.grant_locks = locks}), dom0(hypervisor) {
    guest = std::move(*InProcessGuest<RealEnv>::create(hypervisor, DomId(1), kPages));
    block = *guest->allocate_pages(kDom0, kPages);
    for (std::uint32_t i = 0; i < kPages; ++i) {
      grefs.push_back(*guest->grant(kDom0, FrameNumber(block.first_frame.value() + i), Access::read_write));
    }
  }
  // Threads that run at once use pages of their own, as requests in flight do.
  [[nodiscard]] GrantRef gref(int thread, std::size_t i) const {
    return grefs[(static_cast<std::size_t>(thread) * 97 + i * 2) % kPages];
  }
  RealEnv env;
  Hypervisor<RealEnv> hypervisor;
  Dom0<RealEnv> dom0;
  std::unique_ptr<InProcessGuest<RealEnv>> guest;
  platform::PageBlock block;
  std::vector<GrantRef> grefs;
};

std::unique_ptr<Rig> shared_rig;

void set_up(const benchmark::State& state) {
  shared_rig = std::make_unique<Rig>(state.range(0) == 0 ? GrantLocks::coarse : GrantLocks::split);
}
void tear_down(const benchmark::State&) {
  shared_rig.reset();
}

void report(benchmark::State& state, std::size_t batch, const platform::LockWait& wait) {
  const auto operations = static_cast<double>(state.iterations()) * static_cast<double>(batch);
  state.SetItemsProcessed(static_cast<std::int64_t>(operations));
  state.counters["lock_wait_ns_per_page"] =
      benchmark::Counter(static_cast<double>(wait.wait_ns) / operations, benchmark::Counter::kAvgThreads);
  state.counters["lock_waits_per_page"] =
      benchmark::Counter(static_cast<double>(wait.contended) / operations, benchmark::Counter::kAvgThreads);
  if (state.thread_index() == 0) state.SetLabel(std::to_string(std::thread::hardware_concurrency()) + " CPUs");
}

void map_unmap(benchmark::State& state) {
  const auto batch = static_cast<std::size_t>(state.range(1));
  std::vector<platform::MapOp> maps(batch);
  std::vector<platform::UnmapOp> unmaps(batch);
  platform::LockWait wait;
  std::size_t next = 0;
  for (auto _ : state) {
    for (auto& op : maps) op.gref = shared_rig->gref(state.thread_index(), next++);
    shared_rig->dom0.map(DomId(1), maps, wait);
    for (std::size_t i = 0; i < batch; ++i) unmaps[i] = {maps[i].handle, maps[i].address};
    shared_rig->dom0.unmap(unmaps, wait);
  }
  report(state, batch, wait);
}

// A copy holds its grant for the time of the copy; the coarse table lock is taken twice for it, not held meanwhile.
void copy(benchmark::State& state) {
  const auto batch = static_cast<std::size_t>(state.range(1));
  std::vector<std::byte> local(kPageSize);
  std::vector<platform::CopyOp> ops(batch);
  for (auto& op : ops) {
    op.length = static_cast<std::uint16_t>(state.range(2));
    op.local = local.data();
  }
  platform::LockWait wait;
  std::size_t next = 0;
  for (auto _ : state) {
    for (auto& op : ops) op.gref = shared_rig->gref(state.thread_index(), next++);
    shared_rig->dom0.copy(DomId(1), ops, wait);
  }
  report(state, batch, wait);
}

void notify_and_consume(benchmark::State& state) {
  Rig rig(GrantLocks::split);
  const EventPort port = *rig.guest->allocate_port(kDom0);
  const EventPort bound = *rig.dom0.bind_interdomain(DomId(1), port);
  for (auto _ : state) {
    rig.guest->notify(port);
    benchmark::DoNotOptimize(rig.dom0.consume(bound));
  }
}

// range(0): 0 coarse, 1 split.
BENCHMARK(map_unmap)
    ->ArgNames({"split", "batch"})
    ->ArgsProduct({{0, 1}, {1, 11, 32}})
    ->ThreadRange(1, 4)
    ->Setup(set_up)
    ->Teardown(tear_down)
    ->UseRealTime();
BENCHMARK(copy)
    ->ArgNames({"split", "batch", "bytes"})
    ->ArgsProduct({{0, 1}, {1, 11}, {512, kPageSize}})
    ->ThreadRange(1, 4)
    ->Setup(set_up)
    ->Teardown(tear_down)
    ->UseRealTime();
BENCHMARK(notify_and_consume);

}  // namespace
}  // namespace xblk::hypervisor
