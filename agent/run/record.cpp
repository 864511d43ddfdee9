#include "agent/run/record.hpp"

#include <fmt/format.h>

#include "agent/report/mechanism.hpp"

namespace xblk::run {
namespace {

using report::Json;
using report::Outcome;

Json to_json(const toggle::Verification& verification) {
  Json list = Json::array();
  for (const toggle::Check& check : verification.checks) {
    list.push_back({{"check", check.name}, {"expected", check.expected}, {"seen", check.seen}, {"ok", check.ok}});
  }
  return list;
}

std::string of_guest(const GuestRecord& record, const std::string& what) {
  return fmt::format("guest {}: {}", record.guest, what);
}

void judge_fio(report::Repeat& repeat, const GuestRecord& guest) {
  const fio::Verdict& verdict = guest.outcome.verdict;
  if (verdict.outcome == fio::Outcome::kFailed) worsen(repeat, Outcome::failed, of_guest(guest, verdict.reason));
  if (verdict.outcome == fio::Outcome::kInconclusive) {
    worsen(repeat, Outcome::inconclusive, of_guest(guest, verdict.reason));
  }
}

void judge_keys(report::Repeat& repeat, const GuestRecord& guest) {
  if (guest.keys && guest.keys->ok()) return;
  worsen(repeat, Outcome::inconclusive,
         of_guest(guest, "not proven by its keys: " + (guest.keys ? guest.keys->first_failure() : "never looked at")));
}

void judge_counters(report::Repeat& repeat, const GuestRecord& guest, const RecordContext& context, Json& proof) {
  if (!guest.outcome.window) {
    worsen(repeat, Outcome::inconclusive, of_guest(guest, guest.outcome.window.error().message));
    return;
  }
  const metrics::Window& window = *guest.outcome.window;
  if (!window.begin.back || !window.end.back) {
    worsen(repeat, Outcome::inconclusive, of_guest(guest, "the backend's counters could not be read"));
    return;
  }
  if (!context.moves_data) return;
  const auto verified = toggle::verify_counters(context.agreement, {.front_begin = window.begin.front,
                                                                    .front_end = window.end.front,
                                                                    .back_begin = *window.begin.back,
                                                                    .back_end = *window.end.back,
                                                                    .load = context.load});
  proof["counters"] = to_json(verified);
  if (!verified.ok()) {
    worsen(repeat, Outcome::inconclusive, of_guest(guest, "not proven by its counters: " + verified.first_failure()));
  }
}

// The statistics of report::kLatencyStatistics that fio gave.
report::LatencyStatistics statistics_of(const fio::Latency& latency) {
  report::LatencyStatistics out;
  const auto put = [&](const char* name, const auto& value) {
    if (value) out[name] = static_cast<double>(*value);
  };
  put("mean", latency.mean_ns);
  put("min", latency.min_ns);
  put("max", latency.max_ns);
  for (const auto& [name, percent] : {std::pair{"p50", 50.0}, {"p90", 90.0}, {"p99", 99.0}, {"p99.9", 99.9}}) {
    const auto found = latency.percentiles_ns.find(percent);
    if (found != latency.percentiles_ns.end()) out[name] = static_cast<double>(found->second);
  }
  return out;
}

// Sums of rates over guests and directions; latencies of a direction merged over guests.
std::uint64_t take_figures(report::Repeat& repeat, const std::vector<GuestRecord>& guests) {
  double iops = 0;
  double bandwidth = 0;
  std::uint64_t total_ios = 0;
  for (const fio::Way way : fio::kWays) {
    std::vector<fio::Latency> latencies;
    for (const GuestRecord& guest : guests) {
      const auto direction = guest.outcome.result.sum(way);
      if (!direction || direction->total_ios == 0) continue;
      iops += direction->iops();
      bandwidth += direction->bandwidth_bytes_per_s();
      total_ios += direction->total_ios;
      latencies.push_back(direction->latency);
    }
    if (latencies.empty()) continue;
    auto statistics = statistics_of(fio::merge(latencies));
    if (!statistics.empty()) repeat.latency_ns[std::string(fio::name(way))] = std::move(statistics);
  }
  if (total_ios == 0) return 0;
  repeat.iops = iops;
  repeat.bandwidth_bytes_per_s = bandwidth;
  return total_ios;
}

void take_mechanism(report::Repeat& repeat, const std::vector<GuestRecord>& guests, const RecordContext& context,
                    std::uint64_t fio_ios) {
  std::vector<metrics::Window> windows;
  for (const GuestRecord& guest : guests) {
    if (guest.outcome.window) windows.push_back(*guest.outcome.window);
  }
  if (windows.size() != guests.size()) return;  // a part must not be taken for the whole
  const auto explained =
      metrics::explain({.guests = windows, .idle_tlb_rate = context.idle_tlb_rate, .fio_ios = fio_ios});
  if (!explained) {
    worsen(repeat, Outcome::inconclusive, explained.error().message);
    return;
  }
  const auto json = metrics::to_json(*explained);
  Json details = Json::object();
  for (const auto& [name, value] : json.items()) {
    if (report::find_mechanism(name) == nullptr) {
      details[name] = Json::parse(value.dump());
    } else {
      repeat.mechanism[name] = value.is_number() ? std::optional(value.get<double>()) : std::nullopt;
    }
  }
  repeat.proof["mechanism"] = std::move(details);
  if (explained->ios_mismatch) {
    worsen(repeat, Outcome::inconclusive,
           fmt::format("fio counted {} I/Os, the drivers {}: more than 1% apart", fio_ios, explained->ios));
  }
}

}  // namespace

void worsen(report::Repeat& repeat, Outcome outcome, const std::string& reason) {
  const bool worse =
      repeat.status == Outcome::ok || (repeat.status == Outcome::inconclusive && outcome == Outcome::failed);
  if (outcome == Outcome::ok || !worse) return;
  repeat.status = outcome;
  repeat.reason = reason;
}

void record(report::Repeat& repeat, const std::vector<GuestRecord>& guests, const RecordContext& context) {
  Json proof = Json::array();
  for (const GuestRecord& guest : guests) {
    Json of_one = {{"guest", guest.guest}, {"fio_exit", guest.outcome.exit.describe()}};
    if (guest.keys) of_one["keys"] = to_json(*guest.keys);
    judge_fio(repeat, guest);
    judge_keys(repeat, guest);
    judge_counters(repeat, guest, context, of_one);
    if (!guest.outcome.result.diagnostics.empty()) of_one["fio_says"] = guest.outcome.result.diagnostics;
    proof.push_back(std::move(of_one));
    repeat.fio_commands.push_back(guest.command);
  }
  repeat.proof["guests"] = std::move(proof);
  if (!guests.empty()) repeat.negotiated = guests.front().negotiated;
  if (repeat.status == Outcome::failed) return;  // numbers of a failed visit are none
  const std::uint64_t fio_ios = take_figures(repeat, guests);
  take_mechanism(repeat, guests, context, fio_ios);
}

}  // namespace xblk::run
