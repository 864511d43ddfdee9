#include "drivers/blkif/keys.hpp"

#include <fmt/format.h>

#include "drivers/blkif/text.hpp"

namespace xblk::blkif::keys {

std::string policy_key(std::string_view name) {
  return fmt::format("{}/{}", kPolicyDirectory, name);
}

std::string negotiated_key(std::string_view name) {
  return fmt::format("{}/{}", kNegotiatedDirectory, name);
}

std::string queue_prefix(std::uint32_t queue) {
  return fmt::format("queue-{}/", queue);
}

std::string ring_ref_key(std::uint32_t page, std::uint32_t pages) {
  return pages == 1 ? std::string(kRingRef) : fmt::format("{}{}", kRingRef, page);
}

Result<std::uint64_t> parse_bounded(std::string_view key, std::string_view text, std::uint64_t min, std::uint64_t max) {
  const auto value = parse_decimal(text);
  if (!value || *value < min || *value > max) {
    return fail(EINVAL, fmt::format("{} = {}: must be a whole number from {} to {}", key, quoted(text), min, max));
  }
  return *value;
}

}  // namespace xblk::blkif::keys
