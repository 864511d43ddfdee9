#include "agent/metrics/snapshot.hpp"

#include <algorithm>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "agent/host/files.hpp"

namespace xblk::metrics {
namespace {

using nlohmann::json;

constexpr std::size_t kMaxFileBytes = std::size_t{8} << 20;  // 64 queues x 2 ends x 3 snapshots are 1 MiB
constexpr std::size_t kMaxSnapshots = 64;

// Reads one line; the first error wins, so the shape of the format reads top to bottom.
class LineReader {
 public:
  explicit LineReader(std::string where) : where_(std::move(where)) {}

  Result<Snapshot> read(std::string_view line) {
    const json object = json::parse(line, nullptr, false);
    if (!object.is_object()) return fail(EINVAL, where_ + ": not a JSON object");
    Snapshot snapshot;
    snapshot.phase = phase(object);
    snapshot.taken = Instant(signed_count(object, "monotonic_ns"));
    snapshot.process_cpu = Nanos(signed_count(object, "process_cpu_ns"));
    if (const json* tlb = optional_member(object, "tlb_ipis")) {
      if (tlb->is_number_unsigned()) {
        snapshot.tlb_ipis = tlb->get<std::uint64_t>();
      } else {
        refuse("tlb_ipis is neither a count nor null");
      }
    }
    if (const json* front = optional_member(object, "front")) {
      snapshot.front = statistics(*front, End::front);
    } else {
      refuse("front is missing");
    }
    if (const json* back = optional_member(object, "back")) snapshot.back = statistics(*back, End::back);
    if (error_) return tl::unexpected(*error_);
    return snapshot;
  }

 private:
  void refuse(const std::string& why) {
    if (!error_) error_ = Error{EINVAL, where_ + ": " + why};
  }

  static const json* optional_member(const json& object, const char* key) {
    const auto it = object.find(key);
    return it == object.end() || it->is_null() ? nullptr : &*it;
  }

  std::uint64_t count(const json& object, std::string_view key) {
    const auto it = object.find(std::string(key));
    if (it != object.end() && it->is_number_unsigned()) return it->get<std::uint64_t>();
    refuse(fmt::format("{} is missing or not a count", key));
    return 0;
  }

  std::int64_t signed_count(const json& object, std::string_view key) {
    const std::uint64_t value = count(object, key);
    if (value > INT64_MAX) refuse(fmt::format("{} is out of range", key));
    return static_cast<std::int64_t>(std::min<std::uint64_t>(value, INT64_MAX));
  }

  Phase phase(const json& object) {
    const auto it = object.find("phase");
    const std::string text = it != object.end() && it->is_string() ? it->get<std::string>() : "";
    if (text == "ramp_end") return Phase::kRampEnd;
    if (text == "end") return Phase::kEnd;
    if (text != "start") refuse("phase is none of start, ramp_end, end");
    return Phase::kStart;
  }

  StatisticsSample statistics(const json& object, End end) {
    StatisticsSample sample;
    sample.end = end;
    const char* name = end == End::front ? "front" : "back";
    if (!object.is_object()) {
      refuse(fmt::format("{} is not an object", name));
      return sample;
    }
    const std::uint64_t generation = count(object, "generation");
    if (generation > UINT32_MAX) refuse("generation is out of range");
    sample.generation = static_cast<std::uint32_t>(generation);
    const auto queues = object.find("queues");
    if (queues == object.end() || !queues->is_array() || queues->size() > kStatisticsQueuesMax) {
      refuse(fmt::format("{} has no list of at most {} queues", name, kStatisticsQueuesMax));
      return sample;
    }
    for (const json& queue : *queues) sample.queues.push_back(queue_sample(queue));
    return sample;
  }

  QueueSample queue_sample(const json& object) {
    QueueSample sample;
    const auto members = [&](const char* key, const auto& names, auto& values) {
      const auto it = object.is_object() ? object.find(key) : object.end();
      if (it == object.end() || !it->is_object()) return refuse(fmt::format("a queue has no {}", key));
      for (std::size_t i = 0; i < names.size(); ++i) values[i] = count(*it, names[i]);
    };
    members("counters", kCounterNames, sample.counters);
    members("gauges", kGaugeNames, sample.gauges);
    return sample;
  }

  std::string where_;
  std::optional<Error> error_;
};

// Only within one connection do two samples have a difference.
Status check_same_connection(const StatisticsSample& begin, const StatisticsSample& end, const std::string& what) {
  if (begin.generation != end.generation) {
    return fail(EINVAL, fmt::format("{} reconnected during the measurement (generation {} -> {})", what,
                                    begin.generation, end.generation));
  }
  if (begin.queues.size() != end.queues.size()) {
    return fail(EINVAL, fmt::format("{} changed its number of queues without a reconnect", what));
  }
  for (std::size_t q = 0; q < begin.queues.size(); ++q) {
    for (std::size_t c = 0; c < kCounterCount; ++c) {
      if (end.queues[q].counters[c] >= begin.queues[q].counters[c]) continue;
      return fail(EINVAL, fmt::format("{}: counter {} of queue {} ran backwards", what, kCounterNames[c], q));
    }
  }
  return {};
}

}  // namespace

Result<std::vector<Snapshot>> parse_snapshots(std::string_view text, const std::string& file) {
  std::vector<Snapshot> snapshots;
  for (std::size_t number = 1; !text.empty(); ++number) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.empty()) continue;
    const std::string where = fmt::format("{}:{}", file, number);
    if (snapshots.size() == kMaxSnapshots)
      return fail(EFBIG, fmt::format("{}: more than {} snapshots", where, kMaxSnapshots));
    auto snapshot = LineReader(where).read(line);
    if (!snapshot) return tl::unexpected(snapshot.error());
    if (!snapshots.empty() && snapshot->taken < snapshots.back().taken) {
      return fail(EINVAL, where + ": taken before the line above");
    }
    snapshots.push_back(*std::move(snapshot));
  }
  return snapshots;
}

Result<Window> window_of(const std::vector<Snapshot>& snapshots, const std::string& file) {
  const auto last = [&](Phase phase) {
    return std::find_if(snapshots.rbegin(), snapshots.rend(), [&](const Snapshot& s) { return s.phase == phase; });
  };
  auto begin = last(Phase::kRampEnd);
  if (begin == snapshots.rend()) begin = last(Phase::kStart);
  const auto end = last(Phase::kEnd);
  if (begin == snapshots.rend()) return fail(ENODATA, file + ": no snapshot of the start: the engine did not connect");
  if (end == snapshots.rend())
    return fail(ENODATA, file + ": no snapshot of the end: fio was killed or the disk is full");
  if (end->taken <= begin->taken) return fail(EINVAL, file + ": the measurement ended within its ramp");
  if (end->process_cpu < begin->process_cpu) return fail(EINVAL, file + ": the CPU time of the process ran backwards");
  if (auto status = check_same_connection(begin->front, end->front, file + ": the frontend"); !status) {
    return tl::unexpected(status.error());
  }
  if (begin->back.has_value() != end->back.has_value()) {
    return fail(EINVAL, file + ": the backend's statistics appeared or vanished during the measurement");
  }
  if (begin->back) {
    if (auto status = check_same_connection(*begin->back, *end->back, file + ": the backend"); !status) {
      return tl::unexpected(status.error());
    }
  }
  return Window{*begin, *end};
}

Result<Window> read_window(const std::filesystem::path& file) {
  const auto text = host::read_file(file, kMaxFileBytes);
  if (!text) return tl::unexpected(text.error());
  const auto snapshots = parse_snapshots(*text, file.string());
  if (!snapshots) return tl::unexpected(snapshots.error());
  return window_of(*snapshots, file.string());
}

}  // namespace xblk::metrics
