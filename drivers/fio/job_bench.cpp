// What the engine's core adds to an I/O, on a device that costs nothing: submit, commit, reap, per I/O.
#include <benchmark/benchmark.h>

#include "drivers/base/check.hpp"
#include "drivers/fio/job.hpp"

namespace xblk::fio_engine {
namespace {

class InstantChannel final : public blkfront::Channel {
 public:
  Status submit(const blkfront::Io& io) override {
    cookies_[count_++] = io.cookie;
    return {};
  }
  void commit() override {}
  unsigned reap(unsigned, std::span<blkfront::Completion> into, Nanos) override {
    const unsigned count = std::exchange(count_, 0);
    for (unsigned i = 0; i < count; ++i) into[i] = {cookies_[i], 0};
    return count;
  }

 private:
  std::array<void*, 64> cookies_{};
  unsigned count_ = 0;
};

class InstantDevice final : public blkfront::BlockDevice {
 public:
  [[nodiscard]] blkfront::DeviceInfo info() const override { return {}; }
  Result<std::span<std::byte>> allocate_buffers(Bytes) override { return fail(ENOMEM, "none here"); }
  void free_buffers(std::span<std::byte>) override {}
  Result<std::unique_ptr<blkfront::Channel>> open_channel(unsigned) override {
    return std::make_unique<InstantChannel>();
  }
  [[nodiscard]] std::string statistics_path() const override { return {}; }
  [[nodiscard]] std::string backend_statistics_path() const override { return {}; }
  Status disconnect() override { return {}; }
};

Result<std::unique_ptr<blkfront::BlockDevice>> open_instant(const DeviceOptions&) {
  return std::make_unique<InstantDevice>();
}

void job_overhead(benchmark::State& state) {
  const auto batch = static_cast<unsigned>(state.range(0));
  Registry registry(&open_instant);
  const auto job = Job::join(registry, {}).value();
  XBLK_CHECK(job->start(batch).has_value(), "an instant device opens channels");
  std::int64_t reaped = 0;
  for ([[maybe_unused]] auto _ : state) {
    for (unsigned i = 0; i < batch; ++i) benchmark::DoNotOptimize(job->submit({}));
    job->commit();
    reaped += job->reap(batch, batch).value();
  }
  XBLK_CHECK(reaped == state.iterations() * batch, "every I/O came back");
  state.SetItemsProcessed(reaped);
}
BENCHMARK(job_overhead)->Arg(1)->Arg(16)->Arg(64);

}  // namespace
}  // namespace xblk::fio_engine
