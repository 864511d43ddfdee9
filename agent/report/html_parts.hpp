// The parts of the HTML report, and the small pieces they are made of. Only html*.cpp include this.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "agent/report/compare.hpp"
#include "agent/report/figures.hpp"
#include "agent/report/results.hpp"
#include "agent/report/table.hpp"

namespace xblk::report::html {

std::string cell(const std::string& text, bool right = false);
std::string header_row(const std::vector<Table::Column>& columns);
std::string chip(std::string_view text, std::string_view tone);
std::string_view tone_of(Outcome outcome);
std::string_view tone_of(Verdict verdict);

// Sections, each with its heading.
std::string results_table(const Results& results, const SplitParams& split);
std::string comparison_table(const Comparison& comparison);
std::string iops_chart(const Results& results, const std::vector<std::string>& labels);
std::string latency_charts(const Results& results, const std::vector<std::string>& labels);
std::string mechanism_charts(const Results& results, const std::vector<std::string>& labels);

}  // namespace xblk::report::html
