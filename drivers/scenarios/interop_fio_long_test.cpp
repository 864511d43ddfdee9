// The long form of the interop matrix with the real fio: any three policy values meet, on each kind of store.
#include <gtest/gtest.h>

#include <cstdint>
#include <string>

#include "drivers/scenarios/interop_fio.hpp"
#include "drivers/scenarios/interop_matrix.hpp"

namespace xblk::scenarios {
namespace {

constexpr std::uint64_t kSeed = 20260304;
constexpr std::size_t kParts = 10;  // tests of a bearable length

class InteropFioLong : public testing::TestWithParam<std::size_t> {};

TEST_P(InteropFioLong, AnyThreePolicyValuesWorkTogether) {
  const auto rows = pairings(3, kFioStores, kSeed);
  for (std::size_t row = GetParam(); row < rows.size() && !HasFailure(); row += kParts) {
    SCOPED_TRACE(testing::Message() << "seed " << kSeed << ", row " << row << ": " << rows[row]);
    run_with_fio(rows[row]);
  }
}
INSTANTIATE_TEST_SUITE_P(Part, InteropFioLong, testing::Range(std::size_t{0}, kParts));

TEST(InteropFioPresets, EveryDriverOfHistoryWorksWithEveryOther) {
  for (const Pairing& row : preset_pairings("ram")) {
    SCOPED_TRACE(testing::Message() << row);
    run_with_fio(row);
    if (testing::Test::HasFailure()) return;
  }
}

}  // namespace
}  // namespace xblk::scenarios
