#include "drivers/fio/snapshots.hpp"

#include <fcntl.h>
#include <time.h>
#include <unistd.h>

#include <array>
#include <fstream>
#include <sstream>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "drivers/base/statistics_file.hpp"

namespace xblk::fio_engine {
namespace {

using nlohmann::json;

constexpr std::array<std::string_view, 3> kPhaseNames = {"start", "ramp_end", "end"};

std::int64_t clock_ns(clockid_t clock) {
  timespec now{};
  ::clock_gettime(clock, &now);
  return now.tv_sec * INT64_C(1'000'000'000) + now.tv_nsec;
}

json to_json(const StatisticsSample& sample) {
  json queues = json::array();
  for (const QueueSample& queue : sample.queues) {
    json counters = json::object();
    json gauges = json::object();
    for (std::size_t i = 0; i < kCounterCount; ++i) counters[std::string(kCounterNames[i])] = queue.counters[i];
    for (std::size_t i = 0; i < kGaugeCount; ++i) gauges[std::string(kGaugeNames[i])] = queue.gauges[i];
    queues.push_back({{"counters", std::move(counters)}, {"gauges", std::move(gauges)}});
  }
  return {{"generation", sample.generation}, {"queues", std::move(queues)}};
}

Result<json> end_to_json(const std::string& statistics_path) {
  if (statistics_path.empty()) return json(nullptr);
  const auto sample = read_statistics(statistics_path);
  if (!sample) return tl::unexpected(sample.error());
  return to_json(*sample);
}

// One write(2) of the whole line: O_APPEND then keeps the lines of several devices apart.
Status append_line(const std::string& path, const std::string& line) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (fd < 0) return fail_errno("open snapshots file " + path);
  const ssize_t written = ::write(fd, line.data(), line.size());
  Status status;
  if (written < 0) status = fail_errno("write snapshots file " + path);
  if (written >= 0 && static_cast<std::size_t>(written) != line.size()) {
    status = fail(ENOSPC, fmt::format("write snapshots file {}: {} of {} bytes", path, written, line.size()));
  }
  ::close(fd);
  return status;
}

}  // namespace

std::optional<std::uint64_t> tlb_ipis(std::istream& interrupts) {
  for (std::string row; std::getline(interrupts, row);) {
    std::istringstream cells(row);
    std::string name;
    if (!(cells >> name) || name != "TLB:") continue;
    std::uint64_t sum = 0;
    for (std::uint64_t cell = 0; cells >> cell;) sum += cell;
    return sum;
  }
  return std::nullopt;
}

Status append_snapshot(const SnapshotSource& source, Phase phase) {
  if (source.file.empty()) return {};
  json line = {{"phase", kPhaseNames[static_cast<std::size_t>(phase)]},
               {"device", source.device},
               {"domid", source.domid.value()},
               {"monotonic_ns", clock_ns(CLOCK_MONOTONIC)},
               {"process_cpu_ns", clock_ns(CLOCK_PROCESS_CPUTIME_ID)}};
  std::ifstream interrupts("/proc/interrupts");
  const auto ipis = tlb_ipis(interrupts);
  line["tlb_ipis"] = ipis ? json(*ipis) : json(nullptr);
  auto front = end_to_json(source.front_statistics);
  if (!front) return tl::unexpected(front.error());
  auto back = end_to_json(source.back_statistics);
  if (!back) return tl::unexpected(back.error());
  line["front"] = std::move(*front);
  line["back"] = std::move(*back);
  return append_line(source.file, line.dump() + "\n");
}

}  // namespace xblk::fio_engine
