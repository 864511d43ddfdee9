// The interop matrix with the real fio: any two policy values of front end, back end and host meet, and each one meets
// each kind of store.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "drivers/scenarios/interop_fio.hpp"
#include "drivers/scenarios/interop_matrix.hpp"

namespace xblk::scenarios {
namespace {

constexpr std::uint64_t kSeed = 20260303;

class InteropFio : public testing::TestWithParam<Pairing> {};

TEST_P(InteropFio, VerifiesItsBlocksWhateverTheTwoEndsTheHostAndTheStoreAre) {
  SCOPED_TRACE(testing::Message() << "seed " << kSeed << ": " << GetParam());
  run_with_fio(GetParam());
}

INSTANTIATE_TEST_SUITE_P(Row, InteropFio, testing::ValuesIn(pairings(2, kFioStores, kSeed)),
                         [](const auto& test) { return std::to_string(test.index) + "_" + test.param.store; });

// A front end of history with the back end of its time; all pairs of them are in the long form.
std::vector<Pairing> contemporaries() {
  std::vector<Pairing> rows = preset_pairings("file");
  std::erase_if(rows, [](const Pairing& row) { return row.front != row.back; });
  return rows;
}
INSTANTIATE_TEST_SUITE_P(Presets, InteropFio, testing::ValuesIn(contemporaries()),
                         [](const auto& test) { return std::to_string(test.index); });

}  // namespace
}  // namespace xblk::scenarios
