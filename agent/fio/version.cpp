#include "agent/fio/version.hpp"

#include <charconv>

#include <fmt/format.h>

namespace xblk::fio {

std::string Version::text() const {
  return fmt::format("{}.{}", major_number, minor_number);
}

std::optional<Version> parse_version(std::string_view text) {
  constexpr std::string_view kPrefix = "fio-";
  if (!text.starts_with(kPrefix)) return std::nullopt;
  text.remove_prefix(kPrefix.size());
  Version version;
  const char* end = text.data() + text.size();
  const auto first = std::from_chars(text.data(), end, version.major_number);
  if (first.ec != std::errc{} || first.ptr == end || *first.ptr != '.') return std::nullopt;
  const auto second = std::from_chars(first.ptr + 1, end, version.minor_number);
  if (second.ec != std::errc{} || version.major_number < 0 || version.minor_number < 0) return std::nullopt;
  return version;
}

}  // namespace xblk::fio
