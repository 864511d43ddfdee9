// What a queue costs: submit a batch, reap it, 4 KiB reads. Budget: 10 ns a request on null and ram above the copy, as
// both are under every other figure of this project.
#include "drivers/store/store.hpp"

#include <benchmark/benchmark.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "drivers/base/unique_fd.hpp"

namespace xblk::store {
namespace {

// Every block of the store once, in an order without a pattern that a disk could read ahead.
Sectors scattered(std::uint64_t i, std::uint64_t blocks) {
  return Sectors(i * 7919 % blocks * kSectorsPerPage);
}

void measure(benchmark::State& state, Store& store) {
  const auto count = static_cast<std::size_t>(state.range(0));
  const std::uint64_t blocks = store.geometry().capacity.value() / kSectorsPerPage;
  const auto queue = store.open_queue();
  if (!queue) return state.SkipWithError(queue.error().message.c_str());
  const std::unique_ptr<std::byte, decltype(&std::free)> memory(
      static_cast<std::byte*>(std::aligned_alloc(kPageSize, count * kPageSize)), &std::free);
  std::vector<Piece> pieces;
  std::vector<Operation> batch;
  for (std::size_t i = 0; i < count; ++i) pieces.push_back({memory.get() + i * kPageSize, kPageSize});
  for (std::size_t i = 0; i < count; ++i)
    batch.push_back({Op::read, Sectors(0), Sectors(kSectorsPerPage), {&pieces[i], 1}, i});
  std::array<Finished, 64> finished;
  std::uint64_t done = 0;
  std::uint64_t errors = 0;
  for (auto _ : state) {
    for (std::size_t i = 0; i < count; ++i) batch[i].sector = scattered(done + i, blocks);
    (*queue)->submit(batch);
    for (std::size_t left = count; left > 0;) {
      const unsigned n = (*queue)->reap(finished);
      for (unsigned i = 0; i < n; ++i) errors += finished[i].error != 0 ? 1 : 0;
      left -= n;
    }
    done += count;
  }
  if (errors > 0) state.SkipWithError("a read failed");
  state.SetItemsProcessed(static_cast<std::int64_t>(done));
  state.SetLabel(store.description());
}

void fill(Store& store) {
  const auto queue = store.open_queue();
  std::vector<std::byte> data(1 << 20, std::byte{0x5a});
  const Piece piece{data.data(), 1 << 20};
  for (std::uint64_t sector = 0; sector < store.geometry().capacity.value(); sector += 2048) {
    const Operation write{Op::write, Sectors(sector), Sectors(2048), {&piece, 1}, 0};
    (*queue)->submit({&write, 1});
    for (Finished finished; (*queue)->reap({&finished, 1}) == 0;) {
    }
  }
}

void queue(benchmark::State& state, const char* specification) {
  const auto store = open_store(specification);
  if (!store) return state.SkipWithError(store.error().message.c_str());
  fill(**store);
  measure(state, **store);
}

void queue_on_file(benchmark::State& state, bool in_memory) {
  const UniqueFd memory(::memfd_create("store", MFD_CLOEXEC));
  std::string disk = std::filesystem::current_path().string() + "/store-bench-XXXXXX";
  const UniqueFd file(::mkstemp(disk.data()));
  const std::string path = in_memory ? "/proc/self/fd/" + std::to_string(memory.get()) : disk;
  const auto store = open_store("file:8MiB:" + path);
  if (store) {
    fill(**store);
    measure(state, **store);
  } else {
    state.SkipWithError(store.error().message.c_str());
  }
  ::unlink(disk.c_str());
}

BENCHMARK_CAPTURE(queue, null, "null:64MiB")->Arg(1)->Arg(32);
BENCHMARK_CAPTURE(queue, ram, "ram:64MiB")->Arg(1)->Arg(32);
BENCHMARK_CAPTURE(queue, throttled_null, "throttled:1000000MB/s:0ns:null:64MiB")->Arg(1)->Arg(32);
BENCHMARK_CAPTURE(queue_on_file, memory, true)->Arg(1)->Arg(32)->UseRealTime();
BENCHMARK_CAPTURE(queue_on_file, disk, false)->Arg(1)->Arg(32)->UseRealTime();

}  // namespace
}  // namespace xblk::store
