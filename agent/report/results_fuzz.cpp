// results.json may come from anywhere: whatever its bytes, it is refused in one line, or can be written again, shown in
// every form and compared.
#include <cstddef>
#include <cstdint>
#include <string>

#include "agent/report/report.hpp"
#include "agent/report/sittings.hpp"
#include "drivers/base/check.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace xblk::report;
  const auto results = from_json({reinterpret_cast<const char*>(data), size}, "fuzz.json");
  if (!results) {
    XBLK_CHECK(results.error().message.starts_with("fuzz.json: "), "an error names its file");
    XBLK_CHECK(results.error().message.find('\n') == std::string::npos, "an error is one line");
    return 0;
  }
  const std::string text = to_json(*results).dump(-1, ' ', false, Json::error_handler_t::replace);
  const auto again = from_json(text, "again.json");
  XBLK_CHECK(again.has_value(), "what was read can be written and read again");
  XBLK_CHECK(to_json(*again).dump() == text, "and is the same");
  for (const std::string& shown : {render_text(*results, true), render_csv(*results), render_markdown(*results),
                                   render_html(*results, nullptr), render_junit(*results)}) {
    XBLK_CHECK(!shown.empty(), "there is always something to show");
  }
  const auto comparison = compare(*results, *again, {});
  XBLK_CHECK(comparison.has_value(), "a run can be held against itself");
  XBLK_CHECK(comparison->verdict != Verdict::regression && comparison->verdict != Verdict::improvement,
             "and is neither better nor worse");
  static_cast<void>(render_html(*results, &*comparison));
  static_cast<void>(run_notes(*results));
  return 0;
}
