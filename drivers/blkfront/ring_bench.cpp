// What one I/O costs in instructions: reference frontend, ring and reference backend on one thread, so that nothing
// waits and no cache line travels. `model` has free locks, `real` the locks and clock of the machine.
//
// The caller behaves as fio does: a commit for each submission, completions reaped one at a time.
#include <benchmark/benchmark.h>

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "drivers/base/check.hpp"
#include "drivers/blkback/manager.hpp"
#include "drivers/blkfront/device.hpp"
#include "drivers/env/real/real_env.hpp"
#include "drivers/env/virtual/memory_store.hpp"
#include "drivers/env/virtual/virtual_env.hpp"
#include "drivers/hypervisor/dom0.hpp"
#include "drivers/hypervisor/hypervisor.hpp"
#include "drivers/hypervisor/in_process_guest.hpp"

namespace xblk::blkfront {
namespace {

constexpr DomId kGuest{1};
constexpr std::uint32_t kGuestPages = 16384;
constexpr std::size_t kDepthMax = 64;
constexpr std::size_t kIoBytesMax = 128 * 1024;

template <class E>
struct OneProcess {
  using Env = E;
  using Front = hypervisor::InProcessGuest<Env>;
  using Back = hypervisor::Dom0<Env>;
  using Keys = env::MemoryKeys;
};

// The backend's one ring, stepped by the benchmark.
template <class Waitable>
class ByHand final : public blkback::RingRunner<Waitable> {
 public:
  void attach(blkback::RingStep& attached, Waitable, const Waitable*) override { ring = &attached; }
  void detach(blkback::RingStep& detached) override {
    while (!detached.idle()) detached.step(0);
    ring = nullptr;
  }
  void wake() override {}
  blkback::RingStep* ring = nullptr;
};

template <class Env>
class Rig {
 public:
  using P = OneProcess<Env>;

  explicit Rig(const blkif::PolicyMap& front, const blkif::PolicyMap& back) {
    guest_ = std::move(*hypervisor::InProcessGuest<Env>::create(hypervisor_, kGuest, kGuestPages));
    write_keys({{"/frontend", kFront}, {"/frontend-id", "1"}, {"/online", "1"}, {"/params", "null:1GiB"}}, kBack);
    write_keys({{"/backend", kBack}, {"/backend-id", "0"}, {"/virtual-device", "51712"}}, kFront);
    for (const auto& [name, value] : back) write_keys({{"/xblk-policy/" + name, value}}, kBack);
    write_keys({{"/state", "1"}}, kFront);
    write_keys({{"/state", "1"}}, kBack);
    XBLK_CHECK(manager_.start().has_value(), "the in-memory store takes any watch");
    device_ = std::make_unique<Device<P>>(env_, *guest_, guest_keys_, typename Device<P>::Options{kFront, front},
                                          StatisticsFile::anonymous(End::front, blkif::kQueuesMax));
    XBLK_CHECK(device_->start().has_value(), "the directory was written just above");
    while (!device_->connected()) {
      manager_.turn();
      device_->turn();
    }
    channel_ = *device_->open_channel(0);
    buffers_ = *device_->allocate_buffers(Bytes(kDepthMax * kIoBytesMax));
    runner_.ring->defer_events();  // as while it polls
  }
  ~Rig() {
    channel_.reset();
    device_->free_buffers(buffers_);
    device_->request_close();
    while (!device_->closed()) {
      device_->turn();
      manager_.turn();
    }
  }

  void run(IoOp op, std::size_t bytes, std::size_t depth) {
    for (std::size_t i = 0; i < depth; ++i) {
      const Sectors count(bytes / kSectorSize);
      const auto submitted = channel_->submit({op, Sectors(i * count.value()), count, &buffers_[i * bytes], nullptr});
      XBLK_CHECK(submitted.has_value(), "the ring has room for the depth");
      channel_->commit();
    }
    for (std::size_t done = 0; done < depth;) {
      runner_.ring->step(64);
      Completion completion;
      while (channel_->reap(0, {&completion, 1}, Nanos(0)) == 1) ++done;
    }
  }

 private:
  static constexpr const char* kFront = "/local/domain/1/device/vbd/51712";
  static constexpr const char* kBack = "/local/domain/0/backend/xblk/1/51712";

  void write_keys(const blkif::KeyList& keys, const std::string& directory) {
    for (const auto& [key, value] : keys) {
      XBLK_CHECK(keys_.write(directory + key, value).has_value(), "the in-memory store takes any key");
    }
  }

  Env env_;
  hypervisor::Hypervisor<Env> hypervisor_{env_};
  hypervisor::Dom0<Env> dom0_{hypervisor_};
  env::MemoryStore tree_;
  env::MemoryKeys keys_{tree_, kDom0};
  env::MemoryKeys guest_keys_{tree_, kGuest};
  std::unique_ptr<hypervisor::InProcessGuest<Env>> guest_;
  ByHand<typename Env::Waitable> runner_;
  blkback::DeviceContext<P> context_{env_, dom0_, keys_, {&runner_}, "", [](const std::string&) {}};
  blkback::Manager<P> manager_{context_};
  std::unique_ptr<Device<P>> device_;
  std::unique_ptr<Channel> channel_;
  std::span<std::byte> buffers_;
};

template <class Env>
void round_trip(benchmark::State& state, IoOp op, bool persistent, std::size_t bytes) {
  const char* const offer = persistent ? "1" : "0";
  Rig<Env> rig({{"persistent", offer}, {"ring-page-order", "2"}}, {{"persistent", offer}});
  const auto depth = static_cast<std::size_t>(state.range(0));
  for (auto _ : state) rig.run(op, bytes, depth);
  state.SetItemsProcessed(static_cast<std::int64_t>(state.iterations() * depth));
}

void model(benchmark::State& state, IoOp op, bool persistent, std::size_t bytes) {
  round_trip<env::VirtualEnv>(state, op, persistent, bytes);
}
void real(benchmark::State& state, IoOp op, bool persistent, std::size_t bytes) {
  round_trip<env::RealEnv>(state, op, persistent, bytes);
}

BENCHMARK_CAPTURE(model, read_4k, IoOp::read, true, 4096)->Arg(1)->Arg(64);
BENCHMARK_CAPTURE(model, read_128k, IoOp::read, true, 128 * 1024)->Arg(16);
BENCHMARK_CAPTURE(model, flush, IoOp::flush, true, 0)->Arg(64);
BENCHMARK_CAPTURE(real, read_4k, IoOp::read, true, 4096)->Arg(1)->Arg(64);
BENCHMARK_CAPTURE(real, write_4k, IoOp::write, true, 4096)->Arg(64);
BENCHMARK_CAPTURE(real, read_4k_mapped, IoOp::read, false, 4096)->Arg(64);

}  // namespace
}  // namespace xblk::blkfront
