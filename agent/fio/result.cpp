#include "agent/fio/result.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>

#include <fmt/format.h>

#include "agent/fio/text.hpp"
#include "agent/fio/tolerant_json.hpp"

namespace xblk::fio {
namespace {

using nlohmann::json;

constexpr std::size_t kMaxJobs = 4096;

std::optional<std::uint64_t> unsigned_of(const json& object, const char* key) {
  const auto it = object.find(key);
  if (it == object.end() || !it->is_number_unsigned()) return std::nullopt;
  return it->get<std::uint64_t>();
}

std::optional<double> number_of(const json& object, const char* key) {
  const auto it = object.find(key);
  if (it == object.end() || !it->is_number()) return std::nullopt;
  return it->get<double>();
}

std::string text_of(const json& object, const char* key) {
  const auto it = object.find(key);
  return it != object.end() && it->is_string() ? it->get<std::string>() : std::string();
}

const json* object_of(const json& object, const char* key) {
  const auto it = object.find(key);
  return it != object.end() && it->is_object() ? &*it : nullptr;
}

template <class Number>
std::optional<Number> parse_number(const std::string& text) {
  Number value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}

Latency read_latency(const json& direction, const char* key) {
  Latency latency;
  const json* object = object_of(direction, key);
  if (object == nullptr) return latency;
  latency.samples = unsigned_of(*object, "N").value_or(0);
  if (latency.samples == 0) return latency;
  latency.min_ns = unsigned_of(*object, "min");
  latency.max_ns = unsigned_of(*object, "max");
  latency.mean_ns = number_of(*object, "mean");
  if (const json* percentiles = object_of(*object, "percentile")) {
    for (const auto& [percent, value] : percentiles->items()) {
      const auto key_number = parse_number<double>(percent);
      // A repeated key holds an array here: nobody can say which value is whose, so the percentile is absent.
      if (!key_number || !std::isfinite(*key_number) || !value.is_number_unsigned()) continue;
      latency.percentiles_ns[*key_number] = value.get<std::uint64_t>();
    }
  }
  if (const json* bins = object_of(*object, "bins")) {
    for (const auto& [bin, count] : bins->items()) {
      const auto midpoint = parse_number<std::uint64_t>(bin);
      if (midpoint && count.is_number_unsigned()) latency.histogram[*midpoint] = count.get<std::uint64_t>();
    }
  }
  return latency;
}

void append_options(Options& options, const json& object) {
  for (const auto& [key, value] : object.items()) {
    const auto add = [&, name = key](const json& one) {
      options.emplace_back(name, one.is_string() ? one.get<std::string>() : one.dump());
    };
    if (value.is_array()) {
      for (const json& one : value) add(one);
    } else {
      add(value);
    }
  }
}

class Reader {
 public:
  explicit Reader(FioResult& result) : result_(result) {}

  void read(const json& document) {
    result_.version = parse_version(text_of(document, "fio version"));
    if (!result_.version) return problem("the document names no fio version");
    if (*result_.version < kMinimumVersion) {
      return problem(
          fmt::format("written by fio {}; {} or later is needed", result_.version->text(), kMinimumVersion.text()));
    }
    // Client mode with several servers: an array, one object for each (fio >= 3.39).
    if (const auto global = document.find("global options"); global != document.end()) {
      const json list = global->is_array() ? *global : json::array({*global});
      for (const json& one : list) {
        if (one.is_object()) append_options(result_.global_options, one);
      }
    }
    result_.flags.client_mode = document.contains("client_stats");
    const char* key = result_.flags.client_mode ? "client_stats" : "jobs";
    const auto jobs = document.find(key);
    if (jobs == document.end() || !jobs->is_array()) return problem("the document has no list of jobs");
    if (jobs->size() > kMaxJobs) return problem(fmt::format("more than {} jobs", kMaxJobs));
    for (const json& job : *jobs) read_job(job);
  }

 private:
  void problem(std::string line) { result_.problems.push_back(std::move(line)); }

  void read_job(const json& object) {
    if (!object.is_object()) return problem("a job is not an object");
    Job job;
    job.name = text_of(object, "jobname");
    // A pseudo-job that holds the sum of the others.
    if (result_.flags.client_mode && job.name == "All clients") {
      result_.flags.all_clients_dropped = true;
      return;
    }
    const auto error = object.find("error");
    if (error == object.end() || !error->is_number_integer()) return problem(of(job, "has no error field"));
    job.error = error->get<int>();
    for (const Way way : kWays) {
      if (const json* direction = object_of(object, std::string(name(way)).c_str())) {
        job.directions.emplace(way, read_direction(*direction, of(job, name(way))));
      }
    }
    if (const json* mixed = object_of(object, "mixed")) job.mixed = read_direction(*mixed, of(job, "mixed"));
    if (const json* levels = object_of(object, "iodepth_level")) {
      for (const auto& [level, percent] : levels->items()) {
        if (percent.is_number()) job.iodepth_level[level] = percent.get<double>();
      }
    }
    if (const json* steady = object_of(object, "steadystate")) {
      job.steady_state_attained = unsigned_of(*steady, "attained") == 1U;
    }
    if (const json* options = object_of(object, "job options")) append_options(job.options, *options);
    result_.jobs.push_back(std::move(job));
  }

  Direction read_direction(const json& object, const std::string& where) {
    Direction direction;
    const auto required = [&](const char* key) {
      const auto value = unsigned_of(object, key);
      if (!value) problem(fmt::format("{}: {} is missing or not a count", where, key));
      return value.value_or(0);
    };
    direction.io_bytes = required("io_bytes");
    direction.total_ios = required("total_ios");
    direction.runtime_ms = required("runtime");
    direction.latency = read_latency(object, "lat_ns");
    direction.completion_latency = read_latency(object, "clat_ns");
    return direction;
  }

  static std::string of(const Job& job, std::string_view what) { return fmt::format("job '{}': {}", job.name, what); }

  FioResult& result_;
};

// The last document is the result; the ones before it are cumulative reports of the same run.
void read_last_document(FioResult& result, const DocumentStream& stream) {
  if (stream.truncated_last || stream.documents.empty()) {
    result.problems.emplace_back(stream.truncated_last ? "the JSON document is cut off" : "fio wrote no JSON document");
    return;
  }
  result.flags.several_documents = stream.documents.size() > 1;
  const RepairedDocument repaired = repair(stream.documents.back());
  result.flags.control_characters = repaired.control_characters;
  result.flags.invalid_utf8 = repaired.invalid_utf8;
  result.flags.non_finite_numbers = repaired.non_finite;
  auto parsed = parse_tolerant(repaired.text);
  if (!parsed) {
    result.problems.push_back("the JSON document is damaged: " + parsed.error().message);
    return;
  }
  result.flags.duplicate_keys = parsed->duplicate_keys;
  result.document = std::move(parsed->value);
  Reader(result).read(result.document);
}

std::vector<Latency> latencies(const std::vector<const Direction*>& parts, Latency Direction::*which) {
  std::vector<Latency> list;
  for (const Direction* part : parts) list.push_back(part->*which);
  return list;
}

}  // namespace

std::string_view name(Way way) {
  switch (way) {
    case Way::kRead:
      return "read";
    case Way::kWrite:
      return "write";
    case Way::kTrim:
      return "trim";
  }
  return "?";
}

double Direction::iops() const {
  return runtime_ms == 0 ? 0 : static_cast<double>(total_ios) * 1000.0 / static_cast<double>(runtime_ms);
}

double Direction::bandwidth_bytes_per_s() const {
  return runtime_ms == 0 ? 0 : static_cast<double>(io_bytes) * 1000.0 / static_cast<double>(runtime_ms);
}

std::optional<Direction> FioResult::sum(Way way) const {
  std::vector<const Direction*> parts;
  for (const Job& job : jobs) {
    if (const auto it = job.directions.find(way); it != job.directions.end()) parts.push_back(&it->second);
  }
  if (parts.empty()) return std::nullopt;
  Direction total;
  for (const Direction* part : parts) {
    total.io_bytes += part->io_bytes;
    total.total_ios += part->total_ios;
    total.runtime_ms = std::max(total.runtime_ms, part->runtime_ms);
  }
  total.latency = merge(latencies(parts, &Direction::latency));
  total.completion_latency = merge(latencies(parts, &Direction::completion_latency));
  return total;
}

FioResult read_result(std::string_view output, std::string_view standard_output, std::string_view standard_error) {
  FioResult result;
  append_lines(result.diagnostics, standard_error);
  if (output.size() > kMaxOutputBytes || standard_output.size() > kMaxOutputBytes) {
    result.problems.push_back(fmt::format("fio wrote more than {} MiB", kMaxOutputBytes >> 20));
    return result;
  }
  DocumentStream stream = split_documents(output);
  DocumentStream spoken = split_documents(standard_output);
  for (const auto* lines : {&stream.text, &spoken.text}) {
    result.diagnostics.insert(result.diagnostics.end(), lines->begin(), lines->end());
  }
  const bool absent = stream.documents.empty() && !stream.truncated_last;
  read_last_document(result, absent ? spoken : stream);
  return result;
}

}  // namespace xblk::fio
