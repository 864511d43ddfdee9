#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "agent/host/fake/fake_host.hpp"
#include "agent/metrics/mechanism.hpp"

namespace xblk::metrics {
namespace {

using nlohmann::json;
using testing::HasSubstr;

json queue(const std::map<std::string, std::uint64_t>& set) {
  json counters;
  for (const auto name : kCounterNames) counters[std::string(name)] = 0;
  for (const auto& [name, value] : set) counters.at(name) = value;
  json gauges;
  for (const auto name : kGaugeNames) gauges[std::string(name)] = 0;
  return {{"counters", counters}, {"gauges", gauges}};
}

json snapshot(const std::string& phase, std::int64_t monotonic_ns, json front, json back) {
  return {{"phase", phase},
          {"monotonic_ns", monotonic_ns},
          {"process_cpu_ns", monotonic_ns / 2},
          {"tlb_ipis", 1000 + monotonic_ns / 1'000'000},
          {"front", {{"generation", 1}, {"queues", json::array({std::move(front)})}}},
          {"back", {{"generation", 1}, {"queues", json::array({std::move(back)})}}}};
}

using Counts = std::map<std::string, std::uint64_t>;

// One second; the ramp before it did the same I/Os and must not count.
std::vector<json> guest(const Counts& front, const Counts& back) {
  const auto doubled = [](Counts counts) {
    for (auto& [name, value] : counts) value *= 2;
    return counts;
  };
  return {snapshot("start", 1, queue({}), queue({})), snapshot("ramp_end", 1'000'000'000, queue(front), queue(back)),
          snapshot("end", 2'000'000'000, queue(doubled(front)), queue(doubled(back)))};
}

std::string lines(const std::vector<json>& snapshots) {
  std::string text;
  for (const json& each : snapshots) text += each.dump() + "\n";
  return text;
}

Result<Window> window(const std::vector<json>& snapshots) {
  const auto parsed = parse_snapshots(lines(snapshots), "g1");
  if (!parsed) return tl::unexpected(parsed.error());
  return window_of(*parsed, "g1");
}

Mechanism explain_one(const Counts& front, const Counts& back) {
  const Window windows[] = {window(guest(front, back)).value()};
  return explain({.guests = windows, .idle_tlb_rate = {}, .fio_ios = {}}).value();
}

TEST(Mechanism, PerIoValuesOfTheMeasuredWindow) {
  const auto m = explain_one({{"ios", 1000},
                              {"requests", 2000},
                              {"copied_bytes", 4096000},
                              {"notifications_sent", 100},
                              {"pool_lock_wait_ns", 500},
                              {"ring_full_stalls", 50}},
                             {{"maps", 1000},
                              {"unmaps", 1000},
                              {"unmap_calls", 40},
                              {"copies", 10},
                              {"copied_bytes", 40960},
                              {"notifications_sent", 300},
                              {"requests", 2000},
                              {"batches", 125},
                              {"grant_lock_wait_ns", 1500},
                              {"worker_cpu_ns", 7'000'000},
                              {"persistent_hits", 30},
                              {"persistent_misses", 5},
                              {"persistent_overflows", 5},
                              {"persistent_lookup_steps", 2500},
                              {"requests_deferred", 20}});
  EXPECT_EQ(m.ios, 1000U);
  EXPECT_EQ(m.maps_per_io, 1.0);
  EXPECT_EQ(m.unmaps_per_io, 1.0);
  EXPECT_EQ(m.unmap_calls_per_io, 0.04);
  EXPECT_EQ(m.lookup_steps_per_io, 2.5);
  EXPECT_EQ(m.deferrals_per_io, 0.02);
  EXPECT_EQ(m.copies_per_io, 0.01);
  EXPECT_EQ(m.copied_bytes_per_io, 40.96);
  EXPECT_EQ(m.front_copied_bytes_per_io, 4096);
  EXPECT_EQ(m.front_notifications_per_io, 0.1);
  EXPECT_EQ(m.back_notifications_per_io, 0.3);
  EXPECT_DOUBLE_EQ(*m.notifications_per_io, 0.4);
  EXPECT_EQ(m.persistent_hit_ratio, 0.75);
  EXPECT_EQ(m.lock_wait_ns_per_io, 2.0);
  EXPECT_EQ(m.back_cpu_ns_per_io, 7000.0);
  EXPECT_EQ(m.front_cpu_ns_per_io, 500'000);
  EXPECT_EQ(m.requests_per_io, 2);
  EXPECT_EQ(m.ring_full_stalls_per_io, 0.05);
  EXPECT_EQ(m.requests_per_batch, 16.0);
  EXPECT_EQ(m.tlb_ipis_per_io, 1.0);
  EXPECT_EQ(m.tlb_ipis_per_unmap, 1.0);
  EXPECT_FALSE(m.tlb_idle_rate_known);
}

TEST(Mechanism, NoUnmapIsExactlyZeroAndItsQuotientAbsent) {
  const auto m = explain_one({{"ios", 7}}, {{"persistent_hits", 7}});
  EXPECT_EQ(m.unmaps_per_io, 0.0);
  EXPECT_EQ(m.tlb_ipis_per_unmap, std::nullopt);
  EXPECT_EQ(m.persistent_hit_ratio, 1.0);
  EXPECT_EQ(to_json(m)["unmaps_per_io"], 0.0);
  EXPECT_TRUE(to_json(m)["tlb_ipis_per_unmap"].is_null());
}

TEST(Mechanism, NothingLookedUpHasNoHitRatio) {
  EXPECT_EQ(explain_one({{"ios", 1}}, {{"maps", 1}}).persistent_hit_ratio, std::nullopt);
}

TEST(Mechanism, GuestsAreSummedAndTheMachinesIpisCountedOnce) {
  const auto one = window(guest({{"ios", 1000}}, {{"unmaps", 1000}})).value();
  const auto two = window(guest({{"ios", 3000}}, {{"unmaps", 0}})).value();
  const Window windows[] = {one, two};
  const auto m = explain({.guests = windows, .idle_tlb_rate = 200.0, .fio_ios = 4000}).value();
  EXPECT_EQ(m.ios, 4000U);
  EXPECT_EQ(m.unmaps_per_io, 0.25);
  EXPECT_DOUBLE_EQ(*m.tlb_ipis_per_io, 800.0 / 4000);
  EXPECT_DOUBLE_EQ(*m.tlb_ipis_per_unmap, 0.8);
  EXPECT_FALSE(m.ios_mismatch);
}

TEST(Mechanism, BelowIdleIsClampedAndSaysSo) {
  const Window windows[] = {window(guest({{"ios", 1}}, {{"unmaps", 1}})).value()};
  const auto m = explain({.guests = windows, .idle_tlb_rate = 5000.0, .fio_ios = {}}).value();
  EXPECT_EQ(m.tlb_ipis_per_unmap, 0.0);
  EXPECT_TRUE(m.tlb_ipis_clamped);
}

TEST(Mechanism, FiosCountIsCrossChecked) {
  const Window windows[] = {window(guest({{"ios", 1000}}, {})).value()};
  EXPECT_FALSE(explain({.guests = windows, .idle_tlb_rate = {}, .fio_ios = 1010}).value().ios_mismatch);
  EXPECT_TRUE(explain({.guests = windows, .idle_tlb_rate = {}, .fio_ios = 1011}).value().ios_mismatch);
  EXPECT_TRUE(explain({.guests = windows, .idle_tlb_rate = {}, .fio_ios = 989}).value().ios_mismatch);
}

TEST(Mechanism, OneUnknownBackendMakesAllBackValuesAbsent) {
  auto without = guest({{"ios", 10}}, {});
  for (json& each : without) each["back"] = nullptr;
  const Window windows[] = {window(guest({{"ios", 10}}, {{"maps", 10}})).value(), window(without).value()};
  const auto m = explain({.guests = windows, .idle_tlb_rate = {}, .fio_ios = {}}).value();
  EXPECT_EQ(m.maps_per_io, std::nullopt);
  EXPECT_EQ(m.unmaps_per_io, std::nullopt);
  EXPECT_EQ(m.notifications_per_io, std::nullopt);
  EXPECT_EQ(m.ios, 20U);
}

TEST(Mechanism, NoIoIsAnError) {
  const Window windows[] = {window(guest({}, {})).value()};
  EXPECT_FALSE(explain({.guests = windows, .idle_tlb_rate = {}, .fio_ios = {}}));
  EXPECT_FALSE(explain({.guests = {}, .idle_tlb_rate = {}, .fio_ios = {}}));
}

TEST(Window, StartsAtTheStartWhenThereIsNoRamp) {
  auto snapshots = guest({{"ios", 10}}, {});
  snapshots.erase(snapshots.begin() + 1);
  const Window windows[] = {window(snapshots).value()};
  EXPECT_EQ(explain({.guests = windows, .idle_tlb_rate = {}, .fio_ios = {}}).value().ios, 20U);
}

std::string window_error(const std::vector<json>& snapshots) {
  const auto result = window(snapshots);
  return result ? "no error" : result.error().message;
}

TEST(Window, Errors) {
  auto snapshots = guest({{"ios", 10}}, {{"maps", 10}});
  auto changed = snapshots;
  changed[2]["front"]["generation"] = 2;
  EXPECT_THAT(window_error(changed), HasSubstr("g1: the frontend reconnected during the measurement"));
  changed = snapshots;
  changed[2]["back"]["generation"] = 2;
  EXPECT_THAT(window_error(changed), HasSubstr("the backend reconnected"));
  changed = snapshots;
  changed[2]["back"]["queues"][0]["counters"]["maps"] = 9;
  EXPECT_THAT(window_error(changed), HasSubstr("counter maps of queue 0 ran backwards"));
  changed = snapshots;
  changed[2]["process_cpu_ns"] = 0;
  EXPECT_THAT(window_error(changed), HasSubstr("the CPU time of the process ran backwards"));
  changed = snapshots;
  changed[2]["back"] = nullptr;
  EXPECT_THAT(window_error(changed), HasSubstr("vanished"));
  changed = snapshots;
  changed[2]["front"]["queues"].push_back(queue({}));
  EXPECT_THAT(window_error(changed), HasSubstr("number of queues"));
  EXPECT_THAT(window_error({snapshots[0], snapshots[1]}), HasSubstr("no snapshot of the end"));
  EXPECT_THAT(window_error({snapshots[2]}), HasSubstr("no snapshot of the start"));
}

std::string parse_error(const std::string& text) {
  const auto result = parse_snapshots(text, "f");
  return result ? "no error" : result.error().message;
}

TEST(Snapshots, ErrorsNameFileAndLine) {
  const std::string good = snapshot("start", 5, queue({}), queue({})).dump() + "\n";
  EXPECT_EQ(parse_error(good + "\n{\"phase"), "f:3: not a JSON object");
  EXPECT_EQ(parse_error("[1]"), "f:1: not a JSON object");
  auto bad = snapshot("later", 5, queue({}), queue({}));
  EXPECT_EQ(parse_error(bad.dump()), "f:1: phase is none of start, ramp_end, end");
  bad = snapshot("start", 5, queue({}), queue({}));
  bad["front"]["queues"][0]["counters"].erase("unmaps");
  EXPECT_EQ(parse_error(bad.dump()), "f:1: unmaps is missing or not a count");
  bad = snapshot("start", 5, queue({}), queue({}));
  bad["monotonic_ns"] = UINT64_MAX;
  EXPECT_EQ(parse_error(bad.dump()), "f:1: monotonic_ns is out of range");
  bad["monotonic_ns"] = 4;
  EXPECT_EQ(parse_error(good + bad.dump()), "f:2: taken before the line above");
  bad["front"]["queues"] = json::array();
  for (int i = 0; i < 65; ++i) bad["front"]["queues"].push_back(nullptr);
  EXPECT_EQ(parse_error(bad.dump()), "f:1: front has no list of at most 64 queues");
  bad["front"]["queues"] = json::array({nullptr});
  EXPECT_EQ(parse_error(bad.dump()), "f:1: a queue has no counters");
  bad["front"] = 1;
  EXPECT_EQ(parse_error(bad.dump()), "f:1: front is not an object");
}

TEST(Snapshots, AreBounded) {
  std::string many;
  for (int i = 0; i < 65; ++i) many += snapshot("start", 5, queue({}), queue({})).dump() + "\n";
  EXPECT_EQ(parse_error(many), "f:65: more than 64 snapshots");
  EXPECT_EQ(read_window("/dev/zero").error().code, EFBIG);
}

TEST(Snapshots, UnknownCountersAndAMissingTlbRowAreAccepted) {
  auto one = snapshot("start", 5, queue({}), queue({}));
  one["front"]["queues"][0]["counters"]["of_a_later_version"] = 1;
  one["tlb_ipis"] = nullptr;
  const auto parsed = parse_snapshots(one.dump(), "f").value();
  EXPECT_EQ(parsed[0].tlb_ipis, std::nullopt);
}

TEST(IdleRate, ComesFromTheHost) {
  host::FakeHost host([](const host::ProcessSpec&) -> Result<host::FakeLife> { return host::FakeLife{}; });
  EXPECT_EQ(measure_idle_tlb_rate(host, seconds(1)).value(), 0.0);
  EXPECT_EQ(host.now(), Instant(0) + seconds(1));
  host.raise_at(Instant(0) + millis(1500), 2);
  EXPECT_EQ(measure_idle_tlb_rate(host, seconds(1)).error().code, EINTR);
}

}  // namespace
}  // namespace xblk::metrics
