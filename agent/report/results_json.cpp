// results.json to and from the data model. The schema in profiles/schema says the same; a test holds them together.
#include <algorithm>
#include <span>

#include "agent/report/json_cursor.hpp"
#include "agent/report/results.hpp"

namespace xblk::report {
namespace {

Json number_or_null(std::optional<double> value) {
  return value ? Json(*value) : Json(nullptr);
}

Json to_json(const Aggregate& aggregate) {
  return {{"median", aggregate.median},
          {"low", number_or_null(aggregate.low)},
          {"high", number_or_null(aggregate.high)},
          {"n", aggregate.n},
          {"method", aggregate.method}};
}

Json to_json(const std::optional<Aggregate>& aggregate) {
  return aggregate ? to_json(*aggregate) : Json(nullptr);
}

template <class Map>
Json map_to_json(const Map& map) {
  Json out = Json::object();
  for (const auto& [name, value] : map) {
    if constexpr (requires { to_json(value); }) {
      out[name] = to_json(value);
    } else if constexpr (requires { value.begin(); }) {
      out[name] = map_to_json(value);
    } else if constexpr (requires { value.has_value(); }) {
      out[name] = number_or_null(value);
    } else {
      out[name] = value;
    }
  }
  return out;
}

// Members that were added after version 1 was on record are written when they say something: absent means the same.
Json to_json(const Repeat& repeat) {
  Json out = {{"index", repeat.index},
              {"order_position", repeat.order_position},
              {"status", to_string(repeat.status)},
              {"reason", repeat.reason},
              {"iops", number_or_null(repeat.iops)},
              {"bandwidth_bytes_per_s", number_or_null(repeat.bandwidth_bytes_per_s)},
              {"latency_ns", map_to_json(repeat.latency_ns)},
              {"mechanism", map_to_json(repeat.mechanism)},
              {"negotiated", repeat.negotiated},
              {"fio_commands", repeat.fio_commands},
              {"raw_files", repeat.raw_files},
              {"proof", repeat.proof}};
  if (repeat.sitting > 0) out["sitting"] = repeat.sitting;
  if (repeat.interrupted) out["interrupted"] = true;
  return out;
}

Json to_json(const PointResult& point) {
  Json params = Json::object();
  for (const auto& [name, value] : point.params) params[name] = value;
  Json repeats = Json::array();
  for (const Repeat& repeat : point.repeats) repeats.push_back(to_json(repeat));
  return {{"id", point.id},
          {"params", std::move(params)},
          {"status", to_string(point.status)},
          {"reason", point.reason},
          {"iops", to_json(point.iops)},
          {"bandwidth_bytes_per_s", to_json(point.bandwidth_bytes_per_s)},
          {"latency_ns", map_to_json(point.latency_ns)},
          {"mechanism", map_to_json(point.mechanism)},
          {"negotiated", point.negotiated},
          {"fio_command", point.fio_command},
          {"repeats", std::move(repeats)}};
}

Json to_json(const Sitting& sitting) {
  return {{"started", sitting.started},
          {"ended", sitting.ended},
          {"command_line", sitting.command_line},
          {"xblk_version", sitting.xblk_version}};
}

Json to_json(const RunInfo& run) {
  Json out = {{"id", run.id},
              {"profile", {{"name", run.profile_name}, {"text", run.profile_text}}},
              {"command_line", run.command_line},
              {"started", run.started},
              {"ended", run.ended},
              {"platform", run.platform},
              {"seed", run.seed},
              {"order", run.order},
              {"xblk_version", run.xblk_version},
              {"fio_version", run.fio_version},
              {"fingerprint", run.fingerprint}};
  if (run.repeats > 0) out["repeats"] = run.repeats;
  for (const Sitting& sitting : run.sittings) out["sittings"].push_back(to_json(sitting));
  return out;
}

std::optional<double> optional_number(const JsonCursor& object, std::string_view name) {
  const auto found = object.optional_member(name);
  return found ? std::optional(found->number()) : std::nullopt;
}

std::vector<std::string> texts(const JsonCursor& array) {
  std::vector<std::string> out;
  for (const JsonCursor& element : array.elements()) out.push_back(element.text());
  return out;
}

Outcome read_outcome(const JsonCursor& cursor) {
  const std::string text = cursor.text();
  for (const Outcome outcome : {Outcome::ok, Outcome::failed, Outcome::inconclusive}) {
    if (text == to_string(outcome)) return outcome;
  }
  cursor.error("expected ok, failed or inconclusive, found '" + text + "'");
  return Outcome::inconclusive;
}

void expect_name(const JsonCursor& cursor, const std::string& name, std::span<const std::string_view> known) {
  if (std::find(known.begin(), known.end(), name) == known.end()) cursor.error("unknown name '" + name + "'");
}

Aggregate read_aggregate(const JsonCursor& cursor) {
  Aggregate out;
  out.median = cursor.member("median").number();
  out.low = optional_number(cursor, "low");
  out.high = optional_number(cursor, "high");
  out.n = cursor.member("n").count();
  out.method = cursor.member("method").text();
  return out;
}

std::optional<Aggregate> read_optional_aggregate(const JsonCursor& point, std::string_view name) {
  const auto found = point.optional_member(name);
  return found ? std::optional(read_aggregate(*found)) : std::nullopt;
}

// direction -> statistic -> whatever `read` makes of it
template <class Value, class Read>
std::map<std::string, std::map<std::string, Value>> read_latency(const JsonCursor& cursor, Read read) {
  std::map<std::string, std::map<std::string, Value>> out;
  for (const auto& [direction, statistics] : cursor.members()) {
    expect_name(statistics, direction, kDirections);
    for (const auto& [statistic, value] : statistics.members()) {
      expect_name(value, statistic, kLatencyStatistics);
      out[direction][statistic] = read(value);
    }
  }
  return out;
}

Repeat read_repeat(const JsonCursor& cursor) {
  Repeat out;
  out.index = cursor.member("index").count();
  out.order_position = cursor.member("order_position").count();
  if (const auto sitting = cursor.optional_member("sitting")) out.sitting = sitting->count();
  if (const auto interrupted = cursor.optional_member("interrupted")) out.interrupted = interrupted->flag();
  out.status = read_outcome(cursor.member("status"));
  out.reason = cursor.member("reason").text();
  out.iops = optional_number(cursor, "iops");
  out.bandwidth_bytes_per_s = optional_number(cursor, "bandwidth_bytes_per_s");
  out.latency_ns =
      read_latency<double>(cursor.member("latency_ns"), [](const JsonCursor& value) { return value.number(); });
  for (const auto& [name, value] : cursor.member("mechanism").members()) {
    out.mechanism[name] = value.is_null() ? std::nullopt : std::optional(value.number());
  }
  out.negotiated = cursor.member("negotiated").object();
  out.fio_commands = texts(cursor.member("fio_commands"));
  out.raw_files = texts(cursor.member("raw_files"));
  out.proof = cursor.member("proof").object();
  if (out.status == Outcome::ok && !(out.iops && *out.iops > 0)) cursor.error("an ok repeat needs iops above 0");
  return out;
}

PointResult read_point(const JsonCursor& cursor) {
  PointResult out;
  out.id = cursor.member("id").text();
  for (const auto& [name, value] : cursor.member("params").members()) out.params.emplace_back(name, value.text());
  out.status = read_outcome(cursor.member("status"));
  out.reason = cursor.member("reason").text();
  out.iops = read_optional_aggregate(cursor, "iops");
  out.bandwidth_bytes_per_s = read_optional_aggregate(cursor, "bandwidth_bytes_per_s");
  out.latency_ns = read_latency<Aggregate>(cursor.member("latency_ns"), read_aggregate);
  for (const auto& [name, value] : cursor.member("mechanism").members()) out.mechanism[name] = read_aggregate(value);
  out.negotiated = cursor.member("negotiated").object();
  out.fio_command = cursor.member("fio_command").text();
  for (const JsonCursor& repeat : cursor.member("repeats").elements()) out.repeats.push_back(read_repeat(repeat));
  if (out.status == Outcome::ok && !out.iops) cursor.error("an ok point needs iops");
  return out;
}

Sitting read_sitting(const JsonCursor& cursor) {
  Sitting out;
  out.started = cursor.member("started").text();
  out.ended = cursor.member("ended").text();
  out.command_line = cursor.member("command_line").text();
  out.xblk_version = cursor.member("xblk_version").text();
  return out;
}

RunInfo read_run(const JsonCursor& cursor) {
  RunInfo out;
  out.id = cursor.member("id").text();
  out.profile_name = cursor.member("profile").member("name").text();
  out.profile_text = cursor.member("profile").member("text").text();
  out.command_line = cursor.member("command_line").text();
  out.started = cursor.member("started").text();
  out.ended = cursor.member("ended").text();
  out.platform = cursor.member("platform").text();
  out.seed = cursor.member("seed").count();
  out.order = cursor.member("order").text();
  out.xblk_version = cursor.member("xblk_version").text();
  out.fio_version = cursor.member("fio_version").text();
  out.fingerprint = cursor.member("fingerprint").object();
  if (const auto repeats = cursor.optional_member("repeats")) out.repeats = repeats->count();
  if (const auto sittings = cursor.optional_member("sittings")) {
    for (const JsonCursor& sitting : sittings->elements()) out.sittings.push_back(read_sitting(sitting));
  }
  return out;
}

// Documents are walked and printed by recursion, so their depth is bounded before they are taken apart.
constexpr int kDepthMax = 64;

bool too_deep(std::string_view text) {
  int depth = 0;
  bool quoted = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quoted && c == '\\') {
      ++i;
    } else if (c == '"') {
      quoted = !quoted;
    } else if (!quoted && (c == '{' || c == '[')) {
      if (++depth > kDepthMax) return true;
    } else if (!quoted && (c == '}' || c == ']')) {
      --depth;
    }
  }
  return false;
}

bool right_version(const JsonCursor& root) {
  const std::string format = root.member("format").text();
  if (format != kResultsFormat) {
    root.error("not a results file of xblk (\"format\" is '" + format + "')");
    return false;
  }
  const std::uint64_t version = root.member("version").count();
  if (version == kResultsVersion) return true;
  root.error("results version " + std::to_string(version) + ", but this xblk reads version " +
             std::to_string(kResultsVersion) + "; use the xblk that wrote the file");
  return false;
}

}  // namespace

Json to_json(const Results& results) {
  Json points = Json::array();
  for (const PointResult& point : results.points) points.push_back(to_json(point));
  return {{"format", kResultsFormat},
          {"version", kResultsVersion},
          {"run", to_json(results.run)},
          {"points", std::move(points)}};
}

Result<Results> from_json(std::string_view text, const std::string& source) {
  if (too_deep(text)) return fail(EINVAL, source + ": nested more deeply than any results file");
  Json document;
  try {
    document = Json::parse(text);
  } catch (const Json::exception& error) {
    return fail(EINVAL, source + ": not JSON: " + error.what());
  }
  JsonErrors errors;
  const JsonCursor root(document, errors);
  Results results;
  if (right_version(root)) {
    results.run = read_run(root.member("run"));
    for (const JsonCursor& point : root.member("points").elements()) results.points.push_back(read_point(point));
  }
  if (errors.first) return fail(EINVAL, source + ": " + *errors.first);
  return results;
}

}  // namespace xblk::report
