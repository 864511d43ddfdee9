#include "drivers/fio/policy_list.hpp"

#include <fmt/format.h>

namespace xblk::fio_engine {

Result<std::map<std::string, std::string>> parse_policy_list(std::string_view text) {
  std::map<std::string, std::string> policy;
  while (!text.empty()) {
    const std::size_t comma = text.find(',');
    const std::string_view item = text.substr(0, comma);
    text.remove_prefix(comma == std::string_view::npos ? text.size() : comma + 1);
    const std::size_t equals = item.find('=');
    if (equals == std::string_view::npos || equals == 0) {
      return fail(EINVAL, fmt::format("xblk_policy: '{}' is not key=value", item));
    }
    const std::string_view key = item.substr(0, equals);
    if (!policy.emplace(key, item.substr(equals + 1)).second) {
      return fail(EINVAL, fmt::format("xblk_policy: '{}' is given twice", key));
    }
  }
  return policy;
}

}  // namespace xblk::fio_engine
