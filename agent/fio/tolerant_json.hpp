// A JSON reader that keeps every value of a repeated key, as an array in order (fio repeats `filename` in "job
// options", and short percentile lists in "percentile"). nlohmann's own parser keeps the last one silently.
#pragma once

#include <string>

#include <nlohmann/json.hpp>

#include "drivers/base/result.hpp"

namespace xblk::fio {

struct TolerantJson {
  nlohmann::json value;
  bool duplicate_keys = false;
};

// Refuses nesting deeper than fio ever writes, so that hostile input cannot exhaust the stack of a reader.
Result<TolerantJson> parse_tolerant(const std::string& text);

}  // namespace xblk::fio
