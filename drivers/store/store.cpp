#include "drivers/store/store.hpp"

#include <charconv>
#include <string_view>

#include <fmt/format.h>

#include "drivers/store/memory_stores.hpp"

namespace xblk::store {
namespace {

constexpr std::uint64_t kCapacityMax = std::uint64_t{1} << 50;  // bytes; keeps every sector sum far from overflow

Result<Sectors> parse_capacity(const std::string& specification, std::string_view text) {
  std::uint64_t value = 0;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
  const std::string_view unit(end, static_cast<std::size_t>(text.data() + text.size() - end));
  std::uint64_t scale = 0;
  if (unit.empty()) scale = 1;
  if (unit == "KiB" || unit == "K" || unit == "k") scale = 1ULL << 10;
  if (unit == "MiB" || unit == "M" || unit == "m") scale = 1ULL << 20;
  if (unit == "GiB" || unit == "G" || unit == "g") scale = 1ULL << 30;
  if (code != std::errc() || scale == 0 || value == 0 || value > kCapacityMax / scale) {
    return fail(EINVAL, fmt::format("store '{}': '{}' is not a size from 512 bytes to 1 PiB (write 64MiB or 1GiB)",
                                    specification, text));
  }
  if (value * scale % kSectorSize != 0) {
    return fail(EINVAL, fmt::format("store '{}': the size must be a multiple of 512 bytes", specification));
  }
  return Sectors(value * scale / kSectorSize);
}

}  // namespace

Result<Specification> parse_specification(const std::string& specification) {
  const std::string_view text(specification);
  const std::size_t colon = text.find(':');
  const std::string_view kind = text.substr(0, colon);
  if (colon == std::string_view::npos || (kind != "null" && kind != "ram")) {
    return fail(EINVAL, fmt::format("store '{}': expected null:SIZE or ram:SIZE", specification));
  }
  auto capacity = parse_capacity(specification, text.substr(colon + 1));
  if (!capacity) return tl::unexpected(capacity.error());
  return Specification{std::string(kind), *capacity};
}

Result<std::unique_ptr<Store>> open_store(const std::string& specification) {
  const auto parsed = parse_specification(specification);
  if (!parsed) return tl::unexpected(parsed.error());
  if (parsed->kind == "null") return make_null_store(parsed->size);
  return make_ram_store(parsed->size);
}

}  // namespace xblk::store
