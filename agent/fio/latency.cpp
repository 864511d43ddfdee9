#include "agent/fio/latency.hpp"

#include <algorithm>
#include <cmath>
#include <iterator>

#include "drivers/base/check.hpp"

namespace xblk::fio {

std::uint64_t percentile_of(const std::map<std::uint64_t, std::uint64_t>& histogram, double percent) {
  XBLK_CHECK(!histogram.empty(), "a percentile of nothing");
  double total = 0;
  for (const auto& [bin, count] : histogram) total += static_cast<double>(count);
  const double rank = std::ceil(total * percent / 100.0);
  double seen = 0;
  for (const auto& [bin, count] : histogram) {
    seen += static_cast<double>(count);
    if (seen >= rank) return bin;
  }
  return histogram.rbegin()->first;
}

Latency merge(std::span<const Latency> parts) {
  Latency merged;
  double weighted = 0;
  bool every_mean = true;
  bool every_histogram = true;
  for (const Latency& part : parts) {
    if (part.samples == 0) continue;
    if (part.min_ns) merged.min_ns = std::min(merged.min_ns.value_or(*part.min_ns), *part.min_ns);
    if (part.max_ns) merged.max_ns = std::max(merged.max_ns.value_or(*part.max_ns), *part.max_ns);
    every_mean = every_mean && part.mean_ns.has_value();
    weighted += part.mean_ns.value_or(0) * static_cast<double>(part.samples);
    every_histogram = every_histogram && !part.histogram.empty();
    for (const auto& [bin, count] : part.histogram) merged.histogram[bin] += count;
    const bool first = merged.samples == 0;
    std::erase_if(merged.percentiles_ns, [&](const auto& p) { return !part.percentiles_ns.contains(p.first); });
    if (first) merged.percentiles_ns = part.percentiles_ns;
    merged.samples += part.samples;
  }
  const auto contributing = std::count_if(parts.begin(), parts.end(), [](const Latency& p) { return p.samples > 0; });
  if (merged.samples > 0 && every_mean) merged.mean_ns = weighted / static_cast<double>(merged.samples);
  if (contributing <= 1) return merged;
  if (!every_histogram) {
    merged.histogram.clear();
    merged.percentiles_ns.clear();
  }
  for (auto& [percent, value] : merged.percentiles_ns) value = percentile_of(merged.histogram, percent);
  return merged;
}

}  // namespace xblk::fio
