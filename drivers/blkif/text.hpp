// Text from xenstore: a peer chose every byte of it.
#pragma once

#include <charconv>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace xblk::blkif {

// The text in quotes, fit for a one-line message: control and non-ASCII bytes escaped, long values cut.
std::string quoted(std::string_view text);

// Decimal digits only: no sign, space, prefix or tail. Nothing if it is anything else or exceeds 64 bits.
inline std::optional<std::uint64_t> parse_decimal(std::string_view text) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}

}  // namespace xblk::blkif
