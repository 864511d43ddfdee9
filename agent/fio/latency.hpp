// Latency of one direction, as fio reports it, and the only correct way to combine several: by their histograms.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>

namespace xblk::fio {

struct Latency {
  std::uint64_t samples = 0;
  // Absent without samples: fio prints 0 there, which would be a measurement.
  std::optional<std::uint64_t> min_ns;
  std::optional<std::uint64_t> max_ns;
  std::optional<double> mean_ns;
  std::map<double, std::uint64_t> percentiles_ns;    // by percent (99.9); empty when fio gave none
  std::map<std::uint64_t, std::uint64_t> histogram;  // json+: bin's midpoint in ns -> I/Os; empty when not asked
};

// Percentiles are recomputed from the merged histograms at the percents that every part names, never averaged; they
// are absent unless every part with samples has a histogram.
Latency merge(std::span<const Latency> parts);

// Nearest rank. `histogram` must not be empty.
std::uint64_t percentile_of(const std::map<std::uint64_t, std::uint64_t>& histogram, double percent);

}  // namespace xblk::fio
