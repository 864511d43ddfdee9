// Snapshots are another process's output: whatever their bytes, they are a window that can be explained, or refused in
// one line. The bytes are tried as they are, and once more with every counter that they leave out, so that the kept
// inputs are short and know of no counter that comes to be later.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include "agent/metrics/mechanism.hpp"
#include "drivers/base/check.hpp"

namespace {

using namespace xblk::metrics;
using nlohmann::json;

void fill(json& queue) {
  if (!queue.is_object()) return;
  for (const auto name : xblk::kCounterNames) {
    if (queue["counters"].is_null()) queue["counters"] = json::object();
    if (queue["counters"].is_object()) queue["counters"].emplace(std::string(name), 0U);
  }
  for (const auto name : xblk::kGaugeNames) {
    if (queue["gauges"].is_null()) queue["gauges"] = json::object();
    if (queue["gauges"].is_object()) queue["gauges"].emplace(std::string(name), 0U);
  }
}

std::string completed(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    json line = json::parse(text.substr(0, end), nullptr, false);
    text.remove_prefix(std::min(end + 1, text.size()));
    for (const char* side : {"front", "back"}) {
      if (!line.is_object() || !line.contains(side) || !line[side].is_object()) continue;
      json& queues = line[side]["queues"];
      if (queues.is_array()) {
        for (json& queue : queues) fill(queue);
      }
    }
    out += line.dump(-1, ' ', false, json::error_handler_t::replace) + "\n";
  }
  return out;
}

void check_line(const xblk::Error& error) {
  XBLK_CHECK(!error.message.empty() && error.message.find('\n') == std::string::npos, "an error is one line");
}

void explain_or_refuse(std::string_view text) {
  const auto snapshots = parse_snapshots(text, "fuzz.jsonl");
  if (!snapshots) return check_line(snapshots.error());
  const auto window = window_of(*snapshots, "fuzz.jsonl");
  if (!window) return check_line(window.error());
  const Window guests[] = {*window};
  const auto mechanism = explain({.guests = guests, .idle_tlb_rate = 10.0, .fio_ios = 1000});
  if (!mechanism) return check_line(mechanism.error());
  XBLK_CHECK(mechanism->ios > 0, "a window without I/O explains nothing");
  const json figures = to_json(*mechanism);
  for (const auto& [name, value] : figures.items()) {
    if (!value.is_number()) continue;
    XBLK_CHECK(std::isfinite(value.get<double>()) && value.get<double>() >= 0, "a figure is one");
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  explain_or_refuse(text);
  explain_or_refuse(completed(text));
  return 0;
}
