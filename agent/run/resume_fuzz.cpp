// Results that a run is to go on from: whatever they say, they are refused in one line, or the visits that are kept are
// visits of the plan, each once.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>

#include "agent/run/resume.hpp"
#include "drivers/base/check.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace xblk;
  auto former = report::from_json({reinterpret_cast<const char*>(data), size}, "fuzz.json");
  if (!former) return 0;
  const auto one_line = [](const Error& error) {
    XBLK_CHECK(!error.message.empty() && error.message.find('\n') == std::string::npos, "an error is one line");
  };
  const auto schedule = run::schedule_of(*former, "fuzz.json");
  if (!schedule) {
    one_line(schedule.error());
    return 0;
  }
  const run::Circumstances now{former->run.fio_version, former->run.fingerprint};
  const auto kept = run::kept_of(*std::move(former), *schedule, now);
  if (!kept) {
    one_line(kept.error());
    return 0;
  }
  const auto measured = run::measured_visits(*kept, *schedule);
  std::size_t repeats = 0;
  for (const auto& point : kept->points) repeats += point.repeats.size();
  const auto marked = static_cast<std::size_t>(std::count(measured.begin(), measured.end(), true));
  XBLK_CHECK(marked == repeats, "each visit that is kept is one of the plan");
  return 0;
}
