#include "drivers/store/specification.hpp"

#include <array>
#include <charconv>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

#include <fmt/format.h>

namespace xblk::store {
namespace {

constexpr std::uint64_t kCapacityMax = std::uint64_t{1} << 50;  // bytes; every sector sum is far from overflow
constexpr std::uint64_t kRateMax = 1'000'000'000'000;           // bytes a second; above it no link is a limit
constexpr std::uint64_t kRoundTripMax = 10'000'000'000;         // ns; a longer one looks like a store that died
constexpr std::size_t kLinksMax = 4;                            // of one store
constexpr std::string_view kStores = "null:SIZE, ram:SIZE, file:PATH, file:SIZE:PATH or throttled:RATE:ROUNDTRIP:STORE";

struct Unit {
  std::string_view name;
  std::uint64_t scale;
};
constexpr std::array<Unit, 10> kSizeUnits = {{{"", 1},
                                              {"KiB", 1ULL << 10},
                                              {"K", 1ULL << 10},
                                              {"k", 1ULL << 10},
                                              {"MiB", 1ULL << 20},
                                              {"M", 1ULL << 20},
                                              {"m", 1ULL << 20},
                                              {"GiB", 1ULL << 30},
                                              {"G", 1ULL << 30},
                                              {"g", 1ULL << 30}}};
constexpr std::array<Unit, 2> kRateUnits = {{{"MB/s", 1'000'000}, {"MiB/s", 1ULL << 20}}};
constexpr std::array<Unit, 3> kTimeUnits = {{{"ns", 1}, {"us", 1'000}, {"ms", 1'000'000}}};

// A number from 0 to `max` after scaling; nothing when the text is anything else.
std::optional<std::uint64_t> parse_quantity(std::string_view text, std::span<const Unit> units, std::uint64_t max) {
  std::uint64_t value = 0;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (code != std::errc()) return std::nullopt;
  const std::string_view name = text.substr(static_cast<std::size_t>(end - text.data()));
  for (const Unit& unit : units) {
    if (name == unit.name && value <= max / unit.scale) return value * unit.scale;
  }
  return std::nullopt;
}

// Reads a specification from left to right; errors quote all of it, since a part alone says little in a log.
class Parser {
 public:
  explicit Parser(const std::string& text) : whole_(text), rest_(text) {}

  Result<Specification> parse() {
    Specification result;
    while (next_is("throttled:")) {
      const auto link = parse_link();
      if (!link) return tl::unexpected(link.error());
      result.links.push_back(*link);
      if (result.links.size() > kLinksMax) return bad(fmt::format("more than {} links one behind another", kLinksMax));
    }
    if (next_is("null:")) return with_size(std::move(result), Specification::Kind::null);
    if (next_is("ram:")) return with_size(std::move(result), Specification::Kind::ram);
    if (next_is("file:")) return with_path(std::move(result));
    return bad(fmt::format("'{}' is not a store; write {}", rest_, kStores));
  }

 private:
  bool next_is(std::string_view word) {
    if (!rest_.starts_with(word)) return false;
    rest_.remove_prefix(word.size());
    return true;
  }

  // Up to the next colon.
  Result<std::string_view> part(std::string_view what) {
    const std::size_t colon = rest_.find(':');
    if (colon == std::string_view::npos) return bad(fmt::format("a colon is missing after {} '{}'", what, rest_));
    const std::string_view found = rest_.substr(0, colon);
    rest_.remove_prefix(colon + 1);
    return found;
  }

  Result<Link> parse_link() {
    const auto rate_text = part("the rate");
    if (!rate_text) return tl::unexpected(rate_text.error());
    const auto rate = parse_quantity(*rate_text, kRateUnits, kRateMax);
    if (!rate || *rate == 0) {
      return bad(fmt::format("'{}' is not a rate from 1MB/s to {}MB/s (write 70MB/s or 64MiB/s)", *rate_text,
                             kRateMax / 1'000'000));
    }
    const auto time_text = part("the round trip");
    if (!time_text) return tl::unexpected(time_text.error());
    const auto round_trip = parse_quantity(*time_text, kTimeUnits, kRoundTripMax);
    if (!round_trip) {
      return bad(fmt::format("'{}' is not a round trip from 0ns to {}ms (write 500us or 2ms)", *time_text,
                             kRoundTripMax / 1'000'000));
    }
    return Link{*rate, Nanos(static_cast<std::int64_t>(*round_trip))};
  }

  Result<Sectors> parse_size(std::string_view text) {
    const auto bytes = parse_quantity(text, kSizeUnits, kCapacityMax);
    if (!bytes || *bytes == 0) {
      return bad(fmt::format("'{}' is not a size from 512 bytes to 1 PiB (write 64MiB or 1GiB)", text));
    }
    if (*bytes % kSectorSize != 0) return bad(fmt::format("the size '{}' is not a multiple of 512 bytes", text));
    return Sectors(*bytes / kSectorSize);
  }

  Result<Specification> with_size(Specification result, Specification::Kind kind) {
    const auto size = parse_size(rest_);
    if (!size) return tl::unexpected(size.error());
    result.kind = kind;
    result.size = *size;
    return result;
  }

  // A path begins with a slash and a size never does, so a path may contain colons.
  Result<Specification> with_path(Specification result) {
    if (!rest_.starts_with('/') && rest_.find(":/") != std::string_view::npos) {
      const auto text = part("the size");
      const auto size = parse_size(*text);
      if (!size) return tl::unexpected(size.error());
      result.size = *size;
    }
    if (!rest_.starts_with('/')) {
      return bad(fmt::format("'{}' is not an absolute path (write file:/PATH or file:SIZE:/PATH)", rest_));
    }
    if (rest_.find('\0') != std::string_view::npos) return bad("the path contains a NUL");
    result.kind = Specification::Kind::file;
    result.path = std::string(rest_);
    return result;
  }

  [[nodiscard]] tl::unexpected<Error> bad(const std::string& why) const {
    return fail(EINVAL, fmt::format("store '{}': {}", whole_, why));
  }

  const std::string& whole_;
  std::string_view rest_;
};

}  // namespace

Result<Specification> parse_specification(const std::string& specification) {
  return Parser(specification).parse();
}

}  // namespace xblk::store
