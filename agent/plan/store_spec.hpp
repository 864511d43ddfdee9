// The backing store of each guest's disk, as a profile says it: the grammar of drivers/store/specification.hpp, with
// `{guest}` in a path for the guest's number, since each guest needs a file of its own.
#pragma once

#include <string>

#include "drivers/base/result.hpp"
#include "drivers/base/units.hpp"
#include "drivers/store/specification.hpp"

namespace xblk::plan {

using StoreSpec = store::Specification;

inline constexpr std::string_view kGuestInPath = "{guest}";

Result<StoreSpec> parse_store(const std::string& text);

// The same text for the same store, in the largest units: "null:1g", "throttled:70MB/s:350us:ram:1g".
std::string to_string(const StoreSpec& store);

// As the backend of one guest gets it.
std::string store_of_guest(const StoreSpec& store, unsigned guest);
std::string path_of_guest(const StoreSpec& store, unsigned guest);

// "" when this many guests can use it; else what is wrong.
std::string refusal_for_guests(const StoreSpec& store, unsigned guests);

// Its operations finish after they are submitted, one by one.
bool answers_late(const StoreSpec& store);

}  // namespace xblk::plan
