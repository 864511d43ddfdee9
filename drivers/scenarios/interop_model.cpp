#include "drivers/scenarios/interop_model.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "drivers/scenarios/model_load.hpp"
#include "drivers/scenarios/model_rig.hpp"

namespace xblk::scenarios {
namespace {

constexpr DomId kGuest{1};

hypervisor::GrantLocks grant_locks_of(const Pairing& row) {
  const bool split = blkif::parse_host_policy(row.host).value().grant_locks == blkif::GrantLocks::split;
  return split ? hypervisor::GrantLocks::split : hypervisor::GrantLocks::coarse;
}

void run_row(const Pairing& row, std::uint64_t seed, std::uint64_t ios) {
  ModelRig rig(seed, {.grant_locks = grant_locks_of(row)});
  auto& device =
      rig.add_guest(kGuest, {.store = row.store, .front_policy = row.front, .back_policy = row.back, .mode = "w"});
  ASSERT_TRUE(rig.run_until([&] { return device.connected(); })) << device.failure();
  expect_agreement(row, device.info());
  run_workload(rig, device, ios, seed);
  close_and_expect_no_leak(rig, device, kGuest);
  expect_mechanism(row, frontend_sample(device), backend_sample(rig, kGuest));
  EXPECT_THAT(rig.log(), testing::IsEmpty());
}

}  // namespace

void run_on_model(std::span<const Pairing> rows, std::uint64_t seed, std::uint64_t ios) {
  for (std::size_t i = 0; i < rows.size(); ++i) {
    SCOPED_TRACE(testing::Message() << "seed " << seed << ", row " << i << ": " << rows[i]);
    run_row(rows[i], seed + i, ios);
    if (testing::Test::HasFailure()) return;  // the next rows would only repeat it
  }
}

}  // namespace xblk::scenarios
