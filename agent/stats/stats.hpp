// The statistics behind every figure that xblk prints. Small samples (3 to 30 repeats), unknown distribution, so:
// medians and ranks rather than means and normality. Each function names its source.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace xblk::stats {

// Fewer repeats than this give raw values and no interval: a bootstrap of 4 values has at most 35 distinct resamples.
inline constexpr std::size_t kRepeatsForInterval = 5;
inline constexpr double kConfidence = 0.95;
inline constexpr std::uint64_t kBootstrapSeed = 20111;  // fixed, so that a report of the same file is the same report
inline constexpr std::size_t kBootstrapResamples = 5000;

struct Interval {
  double low = 0;
  double high = 0;
};

// Linear interpolation between order statistics: type 7 of Hyndman & Fan, "Sample Quantiles in Statistical Packages",
// The American Statistician 50 (1996), the default of R and NumPy. `values` must not be empty; 0 <= q <= 1.
double quantile(std::span<const double> values, double q);
double median(std::span<const double> values);

// Percentile bootstrap: Efron & Tibshirani, "An Introduction to the Bootstrap" (1993), chapter 13.
// nullopt below kRepeatsForInterval values.
std::optional<Interval> bootstrap_median(std::span<const double> values, std::uint64_t seed = kBootstrapSeed);

// Interval of median(numerator) / median(denominator), both resampled independently: an effect size, as asked for by
// Kalibera & Jones, "Rigorous Benchmarking in Reasonable Time" (ISMM 2013). All values must be > 0.
// nullopt when either side has fewer than kRepeatsForInterval values.
std::optional<Interval> bootstrap_ratio(std::span<const double> numerator, std::span<const double> denominator,
                                        std::uint64_t seed = kBootstrapSeed);

// Mann & Whitney, Annals of Mathematical Statistics 18 (1947). `u` counts the pairs in which the first sample is the
// larger (ties count one half). The two-sided p is exact for samples without ties of up to kMannWhitneyExactMax values
// each, else the normal approximation with correction for ties and continuity.
struct MannWhitney {
  double u = 0;
  double p_two_sided = 1;
  bool exact = false;
};
inline constexpr std::size_t kMannWhitneyExactMax = 20;
MannWhitney mann_whitney(std::span<const double> first, std::span<const double> second);

// Holm's step-down correction (Scandinavian Journal of Statistics 6, 1979): a matrix of many points is many tests, and
// one in twenty would be "significant" by chance. Returns the adjusted p values in the order given.
std::vector<double> holm(std::span<const double> p_values);

// Tukey, "Exploratory Data Analysis" (1977): values outside [Q1 - 1.5 IQR, Q3 + 1.5 IQR]. They are flagged, never
// dropped: a stall of the device under test is a result.
std::vector<std::size_t> tukey_outliers(std::span<const double> values);

}  // namespace xblk::stats
