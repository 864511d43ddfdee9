// Arbitrary directories: lines "key=value". Whatever is accepted is within bounds and survives a round trip.
#include <cstdint>
#include <string>
#include <string_view>

#include "drivers/base/check.hpp"
#include "drivers/blkif/negotiation.hpp"
#include "drivers/blkif/policy.hpp"

namespace xblk::blkif {
namespace {

KeyMap parse_lines(std::string_view input) {
  KeyMap keys;
  while (!input.empty()) {
    const std::string_view line = input.substr(0, input.find('\n'));
    input.remove_prefix(std::min(input.size(), line.size() + 1));
    const std::size_t equals = line.find('=');
    if (equals != std::string_view::npos) keys.emplace(line.substr(0, equals), line.substr(equals + 1));
  }
  return keys;
}

KeyMap as_map(const KeyList& list) {
  return {list.begin(), list.end()};
}

void check_message(const Error& error) {
  XBLK_CHECK(!error.message.empty() && error.code != 0, "a refusal says why");
}

void run(std::string_view input) {
  const KeyMap keys = parse_lines(input);
  const BackendLimits limits{.queues_max = 8, .ring_page_order_max = 4, .indirect_segments_max = 256};
  if (const auto offer = parse_frontend_keys(keys, limits)) {
    XBLK_CHECK(!offer->queues.empty() && offer->queues.size() <= limits.queues_max, "the queue count is bounded");
    XBLK_CHECK(parse_frontend_keys(as_map(frontend_keys(*offer)), limits).value() == *offer, "round trip");
    stale_frontend_keys(*offer, keys);
  } else {
    check_message(offer.error());
  }
  if (const auto offer = parse_backend_keys(keys)) {
    KeyMap written = as_map(backend_limit_keys(offer->limits));
    written.merge(as_map(backend_property_keys(*offer)));
    XBLK_CHECK(parse_backend_keys(written).value() == *offer, "round trip");
  } else {
    check_message(offer.error());
  }
  if (const auto policy = parse_back_policy(keys)) {
    XBLK_CHECK(parse_back_policy(to_keys(*policy)).value() == *policy, "round trip");
  } else {
    check_message(policy.error());
  }
}

}  // namespace
}  // namespace xblk::blkif

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  xblk::blkif::run({reinterpret_cast<const char*>(data), size});
  return 0;
}
