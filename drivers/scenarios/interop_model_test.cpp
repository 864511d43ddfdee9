// The interop matrix in virtual time: any two policy values of front end, back end and host meet, under verified load.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "drivers/scenarios/covering_array.hpp"
#include "drivers/scenarios/interop_matrix.hpp"
#include "drivers/scenarios/interop_model.hpp"

namespace xblk::scenarios {
namespace {

using testing::IsEmpty;

constexpr std::uint64_t kSeed = 20260301;

TEST(CoveringArray, HoldsEveryCombinationOfAsManyFactorsAsItsStrength) {
  const std::vector<std::size_t> levels = {2, 3, 4, 2, 5, 1, 3};
  const auto rows = covering_array(levels, 2, kSeed);
  for (std::size_t a = 0; a < levels.size(); ++a) {
    for (std::size_t b = a + 1; b < levels.size(); ++b) {
      std::set<std::pair<std::size_t, std::size_t>> seen;
      for (const auto& row : rows) seen.emplace(row[a], row[b]);
      EXPECT_EQ(seen.size(), levels[a] * levels[b]) << a << ", " << b;
    }
  }
  EXPECT_LE(rows.size(), 25u) << "20 are the least possible, all combinations are 720";
  EXPECT_EQ(rows, covering_array(levels, 2, kSeed));
  const std::vector<std::size_t> booleans(6, 2);
  std::set<std::vector<std::size_t>> triples;
  for (const auto& row : covering_array(booleans, 3, kSeed)) {
    for (std::size_t a = 0; a < 6; ++a) {
      for (std::size_t b = a + 1; b < 6; ++b) {
        for (std::size_t c = b + 1; c < 6; ++c) triples.insert({a, row[a], b, row[b], c, row[c]});
      }
    }
  }
  EXPECT_EQ(triples.size(), 20u * 8u);
}

TEST(InteropMatrix, EveryIntegerPolicyHasValuesThatStandForItsRange) {
  EXPECT_THAT(integers_without_values(), IsEmpty()) << "add them to the table in interop_matrix.cpp";
}

TEST(InteropMatrix, EveryPolicyOfEveryEndIsInEveryRow) {
  for (const Pairing& pairing : pairings(2, {&kModelStore, 1}, kSeed)) {
    for (const auto& key : blkif::policy_keys()) {
      if (key.name == "preset") continue;
      const std::string name(key.name);
      EXPECT_EQ(pairing.front.contains(name), key.applies_to(blkif::PolicyEnd::front)) << name;
      EXPECT_EQ(pairing.back.contains(name), key.applies_to(blkif::PolicyEnd::back)) << name;
      EXPECT_EQ(pairing.host.contains(name), key.applies_to(blkif::PolicyEnd::host)) << name;
    }
  }
}

TEST(InteropModel, AnyTwoPolicyValuesOfFrontBackAndHostWorkTogether) {
  const auto rows = pairings(2, {&kModelStore, 1}, kSeed);
  RecordProperty("rows", static_cast<int>(rows.size()));
  run_on_model(rows, kSeed, 400);
}

TEST(InteropModel, EveryDriverOfHistoryWorksWithEveryOther) {
  run_on_model(preset_pairings(kModelStore), kSeed, 200);
}

}  // namespace
}  // namespace xblk::scenarios
