#include "drivers/hypervisor/shootdown.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace xblk::hypervisor {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(Shootdown, SumsTheTlbRowOverCpus) {
  EXPECT_EQ(tlb_shootdowns("           CPU0       CPU1\n  0:         10   IO-APIC timer\n"
                           "TLB:      10812       9374   TLB shootdowns\nTRM: 1 2 x\n"),
            20186u);
  EXPECT_EQ(tlb_shootdowns("CPU0\nIPI0: 5\n"), std::nullopt);
  EXPECT_EQ(tlb_shootdowns(""), std::nullopt);
}

ShootdownResult result_with(std::uint64_t interrupts, std::int64_t spinner_cpu_ns) {
  ShootdownResult result;
  result.host.cpus_allowed = 2;
  result.with_second = {1000, interrupts, Nanos(1'000'000), Nanos(spinner_cpu_ns)};
  return result;
}

TEST(Shootdown, VisibleMechanismNeedsNoExplanation) {
  EXPECT_THAT(explain(result_with(500, 0)), IsEmpty());
}

TEST(Shootdown, EveryReasonForFewInterruptsIsNamed) {
  EXPECT_THAT(explain(result_with(499, 400'000)), ::testing::ElementsAre(HasSubstr("ran 40%")));
  EXPECT_THAT(explain(result_with(0, 1'000'000)), ::testing::ElementsAre(HasSubstr("no known reason")));
  ShootdownResult guest = result_with(0, 1'000'000);
  guest.host.paravirtual_flush = true;
  guest.host.broadcast_invalidation = true;
  EXPECT_THAT(explain(guest), ::testing::UnorderedElementsAre(HasSubstr("paravirtual"), HasSubstr("INVLPGB")));
}

TEST(Shootdown, CountsEveryUnmapOfBothPhases) {
  const auto result = measure_shootdowns(2, 50);
  if (!result) {
    EXPECT_EQ(result.error().code, ENOTSUP);
    GTEST_SKIP() << result.error().message;
  }
  EXPECT_EQ(result->alone.unmaps, 100u);
  EXPECT_EQ(result->with_second.unmaps, 100u);
  EXPECT_GT(result->with_second.ns_per_unmap(), 0);
}

}  // namespace
}  // namespace xblk::hypervisor
