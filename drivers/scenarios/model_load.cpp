#include "drivers/scenarios/model_load.hpp"

#include <memory>
#include <vector>

#include <gtest/gtest.h>

namespace xblk::scenarios {
namespace {

QueueSample sum(std::span<QueueCounters> queues) {
  QueueSample total;
  for (const QueueCounters& queue : queues) {
    const QueueSample one = sample(queue);
    for (std::size_t i = 0; i < kCounterCount; ++i) total.counters[i] += one.counters[i];
    for (std::size_t i = 0; i < kGaugeCount; ++i) total.gauges[i] += one.gauges[i];
  }
  return total;
}

}  // namespace

std::uint64_t run_workload(ModelRig& rig, blkfront::Device<ModelPlatform>& device, std::uint64_t ios,
                           std::uint64_t seed, Workload::Options options) {
  const unsigned channels_wanted = device.info().negotiated.queues;
  std::vector<std::unique_ptr<blkfront::Channel>> channels;
  std::vector<std::unique_ptr<Workload>> loads;
  for (unsigned c = 0; c < channels_wanted; ++c) {
    channels.push_back(device.open_channel(c).value());
    options.length = Sectors(4096 / channels_wanted);
    options.first = Sectors(c * options.length.value());
    loads.push_back(std::make_unique<Workload>(device, *channels.back(), options, seed + c));
  }
  std::uint64_t completed = 0;
  while (completed < ios) {
    loads[rig.random().below(loads.size())]->turn();
    rig.turn();
    completed = 0;
    for (auto& load : loads) completed += load->completed();
  }
  std::uint64_t trace = 0;
  for (auto& load : loads) load->drain();
  for (auto& load : loads) {
    EXPECT_TRUE(rig.run_until([&] {
      load->turn();
      return load->in_flight() == 0;
    }));
    EXPECT_EQ(load->mismatches(), 0u);
    EXPECT_EQ(load->errors(), 0u);
    const auto offered = device.info().negotiated;
    if ((offered.flush || offered.barrier) && (offered.discard || !options.discards)) {
      EXPECT_EQ(load->unsupported(), 0u);
    }
    trace = trace * 31 + load->trace();
  }
  return trace;
}

QueueSample frontend_sample(blkfront::Device<ModelPlatform>& device) {
  return sum(device.statistics().queues());
}

QueueSample backend_sample(ModelRig& rig, DomId guest) {
  return sum(rig.backends().devices().at(ModelRig::backend_path(guest))->statistics().queues());
}

void close_and_expect_no_leak(ModelRig& rig, blkfront::Device<ModelPlatform>& device, DomId guest) {
  device.request_close();
  ASSERT_TRUE(rig.run_until([&] { return device.closed(); })) << device.failure();
  const auto usage = rig.usage();
  EXPECT_EQ(usage.mappings, 0u);
  EXPECT_EQ(usage.active_grants, 0u);
  EXPECT_EQ(usage.ports, 0u);
  const QueueSample backend = backend_sample(rig, guest);
  for (std::size_t g = 0; g < kGaugeCount; ++g) EXPECT_EQ(backend.gauges[g], 0u) << kGaugeNames[g];
}

}  // namespace xblk::scenarios
