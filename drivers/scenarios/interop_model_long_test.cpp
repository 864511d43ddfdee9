// The long form of the interop matrix in virtual time.
#include <gtest/gtest.h>

#include <cstdint>

#include "drivers/scenarios/interop_matrix.hpp"
#include "drivers/scenarios/interop_model.hpp"

namespace xblk::scenarios {
namespace {

constexpr std::uint64_t kSeed = 20260302;

TEST(InteropModelLong, EachTwoPolicyValuesAloneWorkBesideTheDefaults) {
  run_on_model(pairs_alone(kModelStore), kSeed, 100);
}

TEST(InteropModelLong, AnyThreePolicyValuesWorkTogether) {
  run_on_model(pairings(3, {&kModelStore, 1}, kSeed), kSeed, 400);
}

}  // namespace
}  // namespace xblk::scenarios
