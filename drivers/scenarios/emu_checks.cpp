#include "drivers/scenarios/emu_checks.hpp"

#include <chrono>
#include <thread>

#include <gtest/gtest.h>

#include "drivers/base/statistics_file.hpp"

namespace xblk::scenarios {
namespace {

constexpr auto kPoll = std::chrono::milliseconds(2);
constexpr int kPollsMax = 10000;

QueueSample total_of(const std::string& file) {
  QueueSample total;
  const auto sample = read_statistics(file, kStatisticsQueuesMax);
  EXPECT_TRUE(sample) << sample.error().message;
  if (!sample) return total;
  for (std::size_t i = 0; i < kCounterCount; ++i) total.counters[i] = sample->total(static_cast<Counter>(i));
  for (std::size_t i = 0; i < kGaugeCount; ++i) total.gauges[i] = sample->total(static_cast<Gauge>(i));
  return total;
}

}  // namespace

bool eventually(const std::function<bool()>& done) {
  for (int i = 0; i < kPollsMax; ++i) {
    if (done()) return true;
    std::this_thread::sleep_for(kPoll);
  }
  return false;
}

QueueSample frontend_sample(const EmuRig& rig, DomId guest) {
  return total_of(rig.options(guest).statistics_path);
}

QueueSample backend_sample(const EmuRig& rig, DomId guest) {
  return total_of(rig.backend_statistics(guest));
}

void expect_closed_without_leak(EmuRig& rig, DomId guest) {
  ASSERT_TRUE(eventually([&] { return rig.dom0().read(rig.backend_path(guest) + "/state").value_or("") == "6"; }))
      << rig.log();
  const QueueSample backend = backend_sample(rig, guest);
  for (std::size_t g = 0; g < kGaugeCount; ++g) EXPECT_EQ(backend.gauges[g], 0u) << kGaugeNames[g];
  EXPECT_TRUE(eventually([&] { return rig.mapped_pieces(guest) == 0; })) << rig.mapped_pieces(guest);
}

}  // namespace xblk::scenarios
