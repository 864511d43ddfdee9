// Reads optional keys with their defaults, and remembers the first that was wrong: parsing a dozen keys reads as a
// list.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "drivers/base/result.hpp"
#include "drivers/blkif/keys.hpp"
#include "drivers/blkif/text.hpp"

namespace xblk::blkif {

class KeyReader {
 public:
  explicit KeyReader(const std::map<std::string, std::string>& keys) : keys_(keys) {}

  [[nodiscard]] std::optional<std::string_view> text(std::string_view key) const {
    const auto found = keys_.find(std::string(key));
    if (found == keys_.end()) return std::nullopt;
    return found->second;
  }

  // The default if the key is missing, also after an error: callers look at status() before they use anything.
  std::uint64_t u64(std::string_view key, std::uint64_t fallback, std::uint64_t min, std::uint64_t max) {
    const auto value = text(key);
    if (!value) return fallback;
    const auto parsed = keys::parse_bounded(key, *value, min, max);
    if (parsed) return *parsed;
    remember(parsed.error());
    return fallback;
  }
  std::uint32_t u32(std::string_view key, std::uint32_t fallback, std::uint32_t min, std::uint32_t max) {
    return static_cast<std::uint32_t>(u64(key, fallback, min, max));
  }
  bool boolean(std::string_view key) { return u64(key, 0, 0, 1) != 0; }

  void require(std::string_view key) {
    if (!text(key)) remember({ENOENT, std::string(key) + ": missing; the other end must write it"});
  }
  void refuse(std::string_view key, std::string_view why) {
    remember({EINVAL, std::string(key) + " = " + quoted(text(key).value_or("")) + ": " + std::string(why)});
  }

  [[nodiscard]] Status status() const {
    if (error_) return tl::make_unexpected(*error_);
    return {};
  }

 private:
  void remember(Error error) {
    if (!error_) error_ = std::move(error);
  }

  const std::map<std::string, std::string>& keys_;
  std::optional<Error> error_;
};

}  // namespace xblk::blkif
