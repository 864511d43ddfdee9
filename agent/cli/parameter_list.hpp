// What a profile may vary, for people and for programs: made from the table that drivers and profiles share.
#pragma once

#include <string>

#include "agent/report/results.hpp"

namespace xblk::cli {

std::string parameter_list();
report::Json parameter_list_json();

}  // namespace xblk::cli
