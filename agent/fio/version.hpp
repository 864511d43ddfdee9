#pragma once

#include <compare>
#include <optional>
#include <string>
#include <string_view>

namespace xblk::fio {

// "fio-3.33", "fio-3.36-17-gb5904", "fio-2.1.10".
struct Version {
  int major_number = 0;
  int minor_number = 0;

  friend auto operator<=>(const Version&, const Version&) = default;
  [[nodiscard]] std::string text() const;
};

std::optional<Version> parse_version(std::string_view text);

// 3.0 made latencies nanoseconds (`_ns`), 3.2 added bw_bytes, 3.18 made lat_percentiles work beside clat's.
inline constexpr Version kMinimumVersion{3, 18};

}  // namespace xblk::fio
