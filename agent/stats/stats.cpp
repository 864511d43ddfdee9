#include "agent/stats/stats.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "drivers/base/check.hpp"
#include "drivers/base/prng.hpp"

namespace xblk::stats {
namespace {

std::vector<double> sorted(std::span<const double> values) {
  std::vector<double> copy(values.begin(), values.end());
  std::sort(copy.begin(), copy.end());
  return copy;
}

double quantile_of_sorted(std::span<const double> values, double q) {
  XBLK_CHECK(!values.empty(), "a quantile needs at least one value");
  XBLK_CHECK(q >= 0 && q <= 1, "a quantile lies between 0 and 1");
  const double position = q * static_cast<double>(values.size() - 1);
  const auto below = static_cast<std::size_t>(std::floor(position));
  const std::size_t above = std::min(below + 1, values.size() - 1);
  return values[below] + (position - static_cast<double>(below)) * (values[above] - values[below]);
}

double resampled_median(std::span<const double> values, Prng& prng, std::vector<double>& scratch) {
  scratch.resize(values.size());
  for (double& slot : scratch) slot = values[prng.below(values.size())];
  std::sort(scratch.begin(), scratch.end());
  return quantile_of_sorted(scratch, 0.5);
}

Interval percentile_interval(std::vector<double> estimates) {
  std::sort(estimates.begin(), estimates.end());
  constexpr double kTail = (1 - kConfidence) / 2;
  return {quantile_of_sorted(estimates, kTail), quantile_of_sorted(estimates, 1 - kTail)};
}

// Number of orderings of m + n values for which U equals each possible value, by the recurrence of Mann & Whitney:
// the largest value belongs either to the first sample (and exceeds all n of the second) or to the second.
std::vector<double> u_distribution(std::size_t m, std::size_t n) {
  std::vector<std::vector<double>> of_n(n + 1, std::vector<double>(1, 1.0));  // m = 0: U is always 0
  for (std::size_t i = 1; i <= m; ++i) {
    std::vector<std::vector<double>> next(n + 1);
    next[0] = {1.0};
    for (std::size_t j = 1; j <= n; ++j) {
      next[j].assign(i * j + 1, 0.0);
      for (std::size_t u = 0; u < of_n[j].size(); ++u) next[j][u + j] += of_n[j][u];
      for (std::size_t u = 0; u < next[j - 1].size(); ++u) next[j][u] += next[j - 1][u];
    }
    of_n = std::move(next);
  }
  return of_n[n];
}

double exact_p(double u, std::size_t m, std::size_t n) {
  const std::vector<double> counts = u_distribution(m, n);
  const double total = std::accumulate(counts.begin(), counts.end(), 0.0);
  const auto extreme = static_cast<std::size_t>(std::min(u, static_cast<double>(m * n) - u));
  const double tail = std::accumulate(counts.begin(), counts.begin() + static_cast<std::ptrdiff_t>(extreme) + 1, 0.0);
  return std::min(1.0, 2 * tail / total);
}

// Sum of t^3 - t over groups of t tied values, the tie correction of the variance of U.
double tie_term(std::span<const double> first, std::span<const double> second) {
  std::vector<double> all(first.begin(), first.end());
  all.insert(all.end(), second.begin(), second.end());
  std::sort(all.begin(), all.end());
  double term = 0;
  for (std::size_t i = 0; i < all.size();) {
    std::size_t end = i;
    while (end < all.size() && all[end] == all[i]) ++end;
    const auto t = static_cast<double>(end - i);
    term += t * t * t - t;
    i = end;
  }
  return term;
}

double approximate_p(double u, double m, double n, double ties) {
  const double total = m + n;
  const double variance = m * n / 12 * (total + 1 - ties / (total * (total - 1)));
  if (variance <= 0) return 1;  // all values equal
  const double z = std::max(0.0, std::abs(u - m * n / 2) - 0.5) / std::sqrt(variance);
  return std::erfc(z / std::sqrt(2.0));
}

}  // namespace

double quantile(std::span<const double> values, double q) {
  return quantile_of_sorted(sorted(values), q);
}

double median(std::span<const double> values) {
  return quantile(values, 0.5);
}

std::optional<Interval> bootstrap_median(std::span<const double> values, std::uint64_t seed) {
  if (values.size() < kRepeatsForInterval) return std::nullopt;
  Prng prng(seed);
  std::vector<double> estimates(kBootstrapResamples);
  std::vector<double> scratch;
  for (double& estimate : estimates) estimate = resampled_median(values, prng, scratch);
  return percentile_interval(std::move(estimates));
}

std::optional<Interval> bootstrap_ratio(std::span<const double> numerator, std::span<const double> denominator,
                                        std::uint64_t seed) {
  if (std::min(numerator.size(), denominator.size()) < kRepeatsForInterval) return std::nullopt;
  Prng prng(seed);
  std::vector<double> estimates(kBootstrapResamples);
  std::vector<double> scratch;
  for (double& estimate : estimates) {
    const double above = resampled_median(numerator, prng, scratch);
    estimate = above / resampled_median(denominator, prng, scratch);
  }
  return percentile_interval(std::move(estimates));
}

MannWhitney mann_whitney(std::span<const double> first, std::span<const double> second) {
  XBLK_CHECK(!first.empty() && !second.empty(), "the U test needs two samples");
  MannWhitney result;
  for (const double a : first) {
    for (const double b : second) result.u += a > b ? 1.0 : a == b ? 0.5 : 0.0;
  }
  const double ties = tie_term(first, second);
  result.exact = ties == 0 && std::max(first.size(), second.size()) <= kMannWhitneyExactMax;
  result.p_two_sided = result.exact ? exact_p(result.u, first.size(), second.size())
                                    : approximate_p(result.u, static_cast<double>(first.size()),
                                                    static_cast<double>(second.size()), ties);
  return result;
}

std::vector<double> holm(std::span<const double> p_values) {
  std::vector<std::size_t> order(p_values.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return p_values[a] != p_values[b] ? p_values[a] < p_values[b] : a < b;
  });
  std::vector<double> adjusted(p_values.size());
  double running = 0;
  for (std::size_t rank = 0; rank < order.size(); ++rank) {
    const auto remaining = static_cast<double>(order.size() - rank);
    running = std::max(running, std::min(1.0, p_values[order[rank]] * remaining));
    adjusted[order[rank]] = running;
  }
  return adjusted;
}

std::vector<std::size_t> tukey_outliers(std::span<const double> values) {
  std::vector<std::size_t> outliers;
  if (values.empty()) return outliers;
  const double q1 = quantile(values, 0.25);
  const double q3 = quantile(values, 0.75);
  const double reach = 1.5 * (q3 - q1);
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (values[i] < q1 - reach || values[i] > q3 + reach) outliers.push_back(i);
  }
  return outliers;
}

}  // namespace xblk::stats
