// The engine option xblk_policy: key=value,key=value.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "drivers/base/result.hpp"

namespace xblk::fio_engine {

// EINVAL: an item without '=', an empty key, a key given twice. Whether a key exists is the frontend's to say.
Result<std::map<std::string, std::string>> parse_policy_list(std::string_view text);

}  // namespace xblk::fio_engine
