// The renderers of one run's results. Each returns the whole document; writing it is the caller's business.
#pragma once

#include <string>

#include "agent/report/compare.hpp"
#include "agent/report/results.hpp"

namespace xblk::report {

std::string render_text(const Results& results, bool colour);
std::string render_csv(const Results& results);  // one line per repeat, raw values, base units
std::string render_markdown(const Results& results);
std::string render_junit(const Results& results);

// One self-contained page: no script, no external resource. `comparison`, if not null, adds its table.
std::string render_html(const Results& results, const Comparison* comparison);

}  // namespace xblk::report
