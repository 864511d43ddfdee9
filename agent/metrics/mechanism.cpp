#include "agent/metrics/mechanism.hpp"

#include <algorithm>
#include <array>
#include <cmath>

#include <fmt/format.h>

namespace xblk::metrics {
namespace {

constexpr double kIosTolerance = 0.01;

using Totals = std::array<std::uint64_t, kCounterCount>;

void add_difference(Totals& totals, const StatisticsSample& begin, const StatisticsSample& end) {
  for (std::size_t q = 0; q < begin.queues.size(); ++q) {
    for (std::size_t c = 0; c < kCounterCount; ++c)
      totals[c] += end.queues[q].counters[c] - begin.queues[q].counters[c];
  }
}

// Sums over all guests' windows.
struct Sums {
  Totals front{};
  std::optional<Totals> back;  // only when every guest's backend is known: a part would be taken for the whole
  Nanos front_cpu;

  [[nodiscard]] double of_front(Counter c) const { return static_cast<double>(front[static_cast<std::size_t>(c)]); }
  [[nodiscard]] std::optional<double> of_back(Counter c) const {
    if (!back) return std::nullopt;
    return static_cast<double>((*back)[static_cast<std::size_t>(c)]);
  }
};

Sums sum_up(std::span<const Window> guests) {
  Sums sums;
  const bool all_backs = std::all_of(guests.begin(), guests.end(), [](const Window& w) { return w.begin.back; });
  if (all_backs) sums.back.emplace();
  for (const Window& guest : guests) {
    add_difference(sums.front, guest.begin.front, guest.end.front);
    if (all_backs) add_difference(*sums.back, *guest.begin.back, *guest.end.back);
    sums.front_cpu += guest.end.process_cpu - guest.begin.process_cpu;
  }
  return sums;
}

std::optional<double> ratio(std::optional<double> value, std::optional<double> divisor) {
  if (!value || !divisor || *divisor == 0) return std::nullopt;
  return *value / *divisor;
}

std::optional<double> plus(std::optional<double> a, std::optional<double> b) {
  if (!a || !b) return std::nullopt;
  return *a + *b;
}

// Guests' windows overlap, and the counter is the machine's: it is taken over the time that covers them all.
std::optional<double> tlb_ipis(const Observed& observed, Mechanism& mechanism) {
  Instant begin = observed.guests.front().begin.taken;
  Instant end = observed.guests.front().end.taken;
  std::uint64_t lowest = UINT64_MAX;
  std::uint64_t highest = 0;
  for (const Window& guest : observed.guests) {
    if (!guest.begin.tlb_ipis || !guest.end.tlb_ipis) return std::nullopt;
    begin = std::min(begin, guest.begin.taken);
    end = std::max(end, guest.end.taken);
    lowest = std::min(lowest, *guest.begin.tlb_ipis);
    highest = std::max(highest, *guest.end.tlb_ipis);
  }
  if (highest < lowest) return std::nullopt;  // a 32-bit counter of the kernel wrapped
  const double elapsed_s = static_cast<double>((end - begin).value()) / 1e9;
  const double above_idle = static_cast<double>(highest - lowest) - observed.idle_tlb_rate.value_or(0) * elapsed_s;
  mechanism.tlb_ipis_clamped = above_idle < 0;
  return std::max(above_idle, 0.0);
}

void cross_check(Mechanism& mechanism, const Observed& observed) {
  if (!observed.fio_ios) return;
  const auto fio = static_cast<double>(*observed.fio_ios);
  const auto own = static_cast<double>(mechanism.ios);
  mechanism.fio_ios_ratio = fio / own;
  mechanism.ios_mismatch = std::abs(fio - own) > own * kIosTolerance;
}

}  // namespace

Result<IdleRate> measure_idle_tlb_rate(host::Host& host, Nanos duration) {
  const auto before = host.interrupts();
  if (!before) return tl::unexpected(before.error());
  const Instant begin = host.now();
  while (host.now() < begin + duration) {
    if (host.wait({}, begin + duration) == host::Wake::kSignal) return fail(EINTR, "interrupted while measuring idle");
  }
  const double elapsed_s = static_cast<double>((host.now() - begin).value()) / 1e9;
  const auto after = host.interrupts();
  if (!after) return tl::unexpected(after.error());
  const auto first = before->sum("TLB");
  const auto last = after->sum("TLB");
  if (!first || !last || *last < *first) return IdleRate{};
  return IdleRate{static_cast<double>(*last - *first) / elapsed_s};
}

Result<Mechanism> explain(const Observed& observed) {
  if (observed.guests.empty()) return fail(ENODATA, "no guest has a window to explain");
  const Sums sums = sum_up(observed.guests);
  Mechanism m;
  m.ios = sums.front[static_cast<std::size_t>(Counter::ios)];
  if (m.ios == 0) return fail(ENODATA, "the frontend counted no I/O between the end of the ramp and the end");
  const auto ios = static_cast<double>(m.ios);

  m.maps_per_io = ratio(sums.of_back(Counter::maps), ios);
  m.unmaps_per_io = ratio(sums.of_back(Counter::unmaps), ios);
  m.unmap_calls_per_io = ratio(sums.of_back(Counter::unmap_calls), ios);
  m.copies_per_io = ratio(sums.of_back(Counter::copies), ios);
  m.copied_bytes_per_io = ratio(sums.of_back(Counter::copied_bytes), ios);
  m.front_copied_bytes_per_io = sums.of_front(Counter::copied_bytes) / ios;
  m.front_notifications_per_io = sums.of_front(Counter::notifications_sent) / ios;
  m.back_notifications_per_io = ratio(sums.of_back(Counter::notifications_sent), ios);
  m.notifications_per_io = plus(m.front_notifications_per_io, m.back_notifications_per_io);

  const auto hits = sums.of_back(Counter::persistent_hits);
  const auto passed_by = plus(sums.of_back(Counter::persistent_misses), sums.of_back(Counter::persistent_overflows));
  m.persistent_hit_ratio = ratio(hits, plus(hits, passed_by));
  m.lookup_steps_per_io = ratio(sums.of_back(Counter::persistent_lookup_steps), ios);

  const double front_wait = sums.of_front(Counter::pool_lock_wait_ns) + sums.of_front(Counter::grant_lock_wait_ns);
  const auto back_wait = plus(sums.of_back(Counter::pool_lock_wait_ns), sums.of_back(Counter::grant_lock_wait_ns));
  m.lock_wait_ns_per_io = ratio(plus(front_wait, back_wait), ios);
  m.front_cpu_ns_per_io = static_cast<double>(sums.front_cpu.value()) / ios;
  m.back_cpu_ns_per_io = ratio(sums.of_back(Counter::worker_cpu_ns), ios);
  m.requests_per_io = sums.of_front(Counter::requests) / ios;
  m.ring_full_stalls_per_io = sums.of_front(Counter::ring_full_stalls) / ios;
  m.requests_per_batch = ratio(sums.of_back(Counter::requests), sums.of_back(Counter::batches));
  m.deferrals_per_io = ratio(sums.of_back(Counter::requests_deferred), ios);

  const auto ipis = tlb_ipis(observed, m);
  m.tlb_ipis_per_io = ratio(ipis, ios);
  m.tlb_ipis_per_unmap = ratio(ipis, sums.of_back(Counter::unmaps));
  m.tlb_idle_rate_known = observed.idle_tlb_rate.has_value();
  cross_check(m, observed);
  return m;
}

nlohmann::json to_json(const Mechanism& m) {
  nlohmann::json json;
  const auto put = [&](const char* key, std::optional<double> value) {
    json[key] = value ? nlohmann::json(*value) : nlohmann::json(nullptr);
  };
  json["ios"] = m.ios;
  put("maps_per_io", m.maps_per_io);
  put("unmaps_per_io", m.unmaps_per_io);
  put("unmap_calls_per_io", m.unmap_calls_per_io);
  put("copies_per_io", m.copies_per_io);
  put("copied_bytes_per_io", m.copied_bytes_per_io);
  put("front_copied_bytes_per_io", m.front_copied_bytes_per_io);
  put("notifications_per_io", m.notifications_per_io);
  put("front_notifications_per_io", m.front_notifications_per_io);
  put("back_notifications_per_io", m.back_notifications_per_io);
  put("persistent_hit_ratio", m.persistent_hit_ratio);
  put("lookup_steps_per_io", m.lookup_steps_per_io);
  put("lock_wait_ns_per_io", m.lock_wait_ns_per_io);
  put("front_cpu_ns_per_io", m.front_cpu_ns_per_io);
  put("back_cpu_ns_per_io", m.back_cpu_ns_per_io);
  put("requests_per_io", m.requests_per_io);
  put("ring_full_stalls_per_io", m.ring_full_stalls_per_io);
  put("requests_per_batch", m.requests_per_batch);
  put("deferrals_per_io", m.deferrals_per_io);
  put("tlb_ipis_per_io", m.tlb_ipis_per_io);
  put("tlb_ipis_per_unmap", m.tlb_ipis_per_unmap);
  json["tlb_ipis_clamped"] = m.tlb_ipis_clamped;
  json["tlb_idle_rate_known"] = m.tlb_idle_rate_known;
  put("fio_ios_ratio", m.fio_ios_ratio);
  json["ios_mismatch"] = m.ios_mismatch;
  return json;
}

}  // namespace xblk::metrics
