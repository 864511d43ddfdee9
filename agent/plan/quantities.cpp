// Sizes and durations as fio reads them.
#include <array>
#include <charconv>

#include "agent/plan/parameters.hpp"

namespace xblk::plan {
namespace {

struct Unit {
  std::string_view suffix;
  std::uint64_t factor;
};

// Multiplies the leading number of `text` by the factor of its suffix; nullopt on anything else, and on overflow.
template <std::size_t N>
std::optional<std::uint64_t> parse_with_unit(std::string_view text, const std::array<Unit, N>& units) {
  std::uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end == text.data()) return std::nullopt;
  std::string suffix(end, text.data() + text.size());
  for (char& c : suffix) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  for (const Unit& unit : units) {
    if (suffix != unit.suffix) continue;
    std::uint64_t product = 0;
    if (__builtin_mul_overflow(number, unit.factor, &product)) return std::nullopt;
    return product;
  }
  return std::nullopt;
}

constexpr std::uint64_t kKibi = 1024;
constexpr std::array kSizeUnits = {
    Unit{"", 1},
    Unit{"b", 1},
    Unit{"k", kKibi},
    Unit{"kb", kKibi},
    Unit{"kib", kKibi},
    Unit{"m", kKibi* kKibi},
    Unit{"mb", kKibi* kKibi},
    Unit{"mib", kKibi* kKibi},
    Unit{"g", kKibi* kKibi* kKibi},
    Unit{"gb", kKibi* kKibi* kKibi},
    Unit{"gib", kKibi* kKibi* kKibi},
    Unit{"t", kKibi* kKibi* kKibi* kKibi},
    Unit{"tib", kKibi* kKibi* kKibi* kKibi},
};

constexpr std::uint64_t kMicro = 1'000;
constexpr std::uint64_t kSecond = 1'000'000'000;
constexpr std::array kDurationUnits = {Unit{"", kSecond},         Unit{"s", kSecond},      Unit{"us", kMicro},
                                       Unit{"ms", kMicro * 1000}, Unit{"m", kSecond * 60}, Unit{"h", kSecond * 3600},
                                       Unit{"d", kSecond * 86400}};

}  // namespace

std::optional<Bytes> parse_size(std::string_view text) {
  const auto bytes = parse_with_unit(text, kSizeUnits);
  return bytes ? std::optional(Bytes(*bytes)) : std::nullopt;
}

std::string format_size(Bytes bytes) {
  constexpr std::array kSuffixes = {"", "k", "m", "g", "t"};
  std::uint64_t value = bytes.value();
  std::size_t suffix = 0;
  while (value != 0 && value % kKibi == 0 && suffix + 1 < kSuffixes.size()) {
    value /= kKibi;
    ++suffix;
  }
  return std::to_string(value) + kSuffixes[suffix];
}

std::optional<Nanos> parse_duration(std::string_view text) {
  const auto ns = parse_with_unit(text, kDurationUnits);
  if (!ns || *ns > INT64_MAX) return std::nullopt;
  return Nanos(static_cast<std::int64_t>(*ns));
}

}  // namespace xblk::plan
