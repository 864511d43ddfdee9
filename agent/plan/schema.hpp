// The JSON schema of a profile, for editors: made from parameters(), so that it knows exactly what the program knows.
#pragma once

#include <nlohmann/json.hpp>

namespace xblk::plan {

nlohmann::ordered_json profile_schema();

}  // namespace xblk::plan
