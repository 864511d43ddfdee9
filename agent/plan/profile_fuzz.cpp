// A profile may come from anywhere: whatever its bytes, reading it ends with points or with one line of explanation.
#include <cstddef>
#include <cstdint>
#include <string>

#include "agent/plan/capacity.hpp"
#include "agent/plan/points.hpp"
#include "drivers/base/check.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  const auto profile = xblk::plan::parse_profile(text, "fuzz.yaml");
  if (!profile) {
    XBLK_CHECK(profile.error().message.starts_with("fuzz.yaml"), "an error names its file");
    return 0;
  }
  const auto points = xblk::plan::expand(*profile);
  XBLK_CHECK(!points.empty() && points.size() <= xblk::plan::kPointsMax, "the matrix is bounded");
  for (const auto& point : points) {
    XBLK_CHECK(!point.id.empty() && point.id.find('/') == std::string::npos, "an id is a file name");
  }
  for (const auto& worst : xblk::plan::worst_limits(points, profile->store, {65'530, 1024})) {
    XBLK_CHECK(worst.limit.need > 0, "everything needs something");
  }
  return 0;
}
