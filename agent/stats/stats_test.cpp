#include "agent/stats/stats.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace xblk::stats {
namespace {

using testing::DoubleNear;
using testing::ElementsAre;
using testing::IsEmpty;
using Values = std::vector<double>;

TEST(Quantile, InterpolatesAsType7) {
  // R: quantile(c(1, 2, 4, 8), c(.25, .5, .9)) = 1.75, 3, 6.8
  const Values values{8, 1, 4, 2};
  EXPECT_DOUBLE_EQ(quantile(values, 0.25), 1.75);
  EXPECT_DOUBLE_EQ(median(values), 3);
  EXPECT_DOUBLE_EQ(quantile(values, 0.9), 6.8);
  EXPECT_DOUBLE_EQ(quantile(values, 0), 1);
  EXPECT_DOUBLE_EQ(quantile(values, 1), 8);
  EXPECT_DOUBLE_EQ(median(Values{7}), 7);
}

TEST(Bootstrap, NeedsFiveValues) {
  EXPECT_FALSE(bootstrap_median(Values{1, 2, 3, 4}).has_value());
  EXPECT_TRUE(bootstrap_median(Values{1, 2, 3, 4, 5}).has_value());
  EXPECT_FALSE(bootstrap_ratio(Values{1, 2, 3, 4, 5}, Values{1, 2, 3, 4}).has_value());
}

TEST(Bootstrap, MedianIntervalHoldsTheMedianAndStaysInsideTheData) {
  const Values values{98, 100, 101, 103, 99, 102, 100.5, 97, 104};
  const auto interval = bootstrap_median(values);
  ASSERT_TRUE(interval.has_value());
  EXPECT_LE(interval->low, 100.5);
  EXPECT_GE(interval->high, 100.5);
  EXPECT_GE(interval->low, 97);
  EXPECT_LE(interval->high, 104);
  // Exactly: P(median of 9 resampled <= k-th value) = P(Binomial(9, k/9) >= 5), which is 0.7 % for k = 1 and 3.0 % for
  // k = 2, so the 2.5 % point is the second value; by symmetry the 97.5 % point is the second largest.
  EXPECT_DOUBLE_EQ(interval->low, 98);
  EXPECT_DOUBLE_EQ(interval->high, 103);
}

TEST(Bootstrap, OfEqualValuesIsAPoint) {
  const auto interval = bootstrap_median(Values{5, 5, 5, 5, 5});
  EXPECT_DOUBLE_EQ(interval->low, 5);
  EXPECT_DOUBLE_EQ(interval->high, 5);
}

TEST(Bootstrap, RatioOfAClearHalvingExcludesOne) {
  const Values base{200, 202, 198, 201, 199};
  const Values slow{100, 101, 99, 100.5, 99.5};
  const auto interval = bootstrap_ratio(slow, base);
  ASSERT_TRUE(interval.has_value());
  EXPECT_THAT(interval->low, DoubleNear(0.5, 0.02));
  EXPECT_THAT(interval->high, DoubleNear(0.5, 0.02));
  EXPECT_LT(interval->low, interval->high);
}

TEST(Bootstrap, SameSeedSameInterval) {
  const Values values{1, 5, 2, 9, 4, 6};
  EXPECT_EQ(bootstrap_median(values, 1)->low, bootstrap_median(values, 1)->low);
  EXPECT_EQ(bootstrap_ratio(values, values, 3)->high, bootstrap_ratio(values, values, 3)->high);
}

TEST(MannWhitneyTest, ExactKnownValues) {
  // Complete separation of 5 and 5: 2 / C(10,5) = 2/252.
  const auto separated = mann_whitney(Values{1, 2, 3, 4, 5}, Values{6, 7, 8, 9, 10});
  EXPECT_DOUBLE_EQ(separated.u, 0);
  EXPECT_TRUE(separated.exact);
  EXPECT_DOUBLE_EQ(separated.p_two_sided, 2.0 / 252.0);
  // 3 and 3: 2 / C(6,3) = 0.1, which is why three repeats alone prove nothing at 5 %.
  EXPECT_DOUBLE_EQ(mann_whitney(Values{4, 5, 6}, Values{1, 2, 3}).p_two_sided, 0.1);
  // R: wilcox.test(c(1.1,2.2,3.3,4.4), c(0.5,2.5,5.5,6.5)): W = 6, p = 0.6857
  const auto mixed = mann_whitney(Values{1.1, 2.2, 3.3, 4.4}, Values{0.5, 2.5, 5.5, 6.5});
  EXPECT_DOUBLE_EQ(mixed.u, 6);
  EXPECT_NEAR(mixed.p_two_sided, 0.6857, 0.0001);
}

TEST(MannWhitneyTest, TiesUseTheCorrectedNormalApproximation) {
  // R: wilcox.test(c(1,2,2,3), c(2,3,4,5), correct=TRUE): W = 2.5, p = 0.1367
  const auto tied = mann_whitney(Values{1, 2, 2, 3}, Values{2, 3, 4, 5});
  EXPECT_DOUBLE_EQ(tied.u, 2.5);
  EXPECT_FALSE(tied.exact);
  EXPECT_NEAR(tied.p_two_sided, 0.1367, 0.001);
  EXPECT_DOUBLE_EQ(mann_whitney(Values{1, 1, 1}, Values{1, 1}).p_two_sided, 1);
}

TEST(Holm, StepsDownAndStaysMonotonic) {
  EXPECT_THAT(holm(Values{0.01, 0.04, 0.03}),
              ElementsAre(DoubleNear(0.03, 1e-12), DoubleNear(0.06, 1e-12), DoubleNear(0.06, 1e-12)));
  EXPECT_THAT(holm(Values{0.9, 0.8}), ElementsAre(1.0, 1.0));
  EXPECT_THAT(holm(Values{}), IsEmpty());
}

TEST(Tukey, FlagsOnlyTheFarValue) {
  EXPECT_THAT(tukey_outliers(Values{10, 11, 12, 10.5, 11.5, 40}), ElementsAre(5u));
  EXPECT_THAT(tukey_outliers(Values{10, 11, 12}), IsEmpty());
  EXPECT_THAT(tukey_outliers(Values{}), IsEmpty());
}

}  // namespace
}  // namespace xblk::stats
