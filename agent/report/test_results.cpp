#include "agent/report/test_results.hpp"

namespace xblk::report {
namespace {

Repeat example_repeat(const std::string& id, std::size_t index, double iops, bool persistent) {
  Repeat repeat;
  repeat.index = index;
  repeat.order_position = index * 4;
  repeat.status = Outcome::ok;
  repeat.iops = iops;
  repeat.bandwidth_bytes_per_s = iops * 4096;
  const double latency = 32e9 / iops;
  repeat.latency_ns["read"] = {{"mean", latency},       {"min", latency * 0.4}, {"max", latency * 9},
                               {"p50", latency * 0.95}, {"p90", latency * 1.4}, {"p99", latency * 2.2},
                               {"p99.9", latency * 4}};
  const double per_request = persistent ? 0 : 1;
  repeat.mechanism = {{"maps_per_io", per_request},
                      {"unmaps_per_io", per_request},
                      {"copies_per_io", 0},
                      {"copied_bytes_per_io", persistent ? 4096 : 0},
                      {"notifications_per_io", 0.21},
                      {"persistent_hit_ratio", persistent ? 1 : 0},
                      {"lock_wait_ns_per_io", 3.5},
                      {"front_cpu_ns_per_io", 1250},
                      {"back_cpu_ns_per_io", persistent ? 640 : 2900},
                      {"tlb_ipis_per_unmap", std::nullopt},
                      {"tlb_ipis_per_io", std::nullopt}};
  repeat.negotiated = {{"front", {{"persistent", persistent ? "1" : "0"}, {"queues", "1"}}},
                       {"back", {{"persistent", persistent ? "1" : "0"}, {"queues", "1"}}}};
  repeat.fio_commands = {"fio --name=" + id};
  repeat.raw_files = {id + "/repeat-" + std::to_string(index) + "/guest-1.json"};
  repeat.proof = {{"fio_ios", 300000}, {"driver_ios", 300000}};
  return repeat;
}

}  // namespace

PointResult example_point(const std::string& id, const Params& params, const std::vector<double>& iops) {
  PointResult point;
  point.id = id;
  point.params = params;
  const bool persistent = id.find("-persistent") != std::string::npos;
  for (const double value : iops) point.repeats.push_back(example_repeat(id, point.repeats.size(), value, persistent));
  summarise(point);
  return point;
}

Results example_results() {
  Results results;
  results.run = {.id = "20261130T120000Z-quick",
                 .profile_name = "quick",
                 .profile_text = "name: quick\n# <b>&\"text\"\n",
                 .command_line = "xblk run profiles/quick.yaml",
                 .started = "2026-11-30T12:00:00Z",
                 .ended = "2026-11-30T12:01:00Z",
                 .platform = "emu",
                 .seed = 4711,
                 .order = "interleaved",
                 .xblk_version = "0.1.0",
                 .fio_version = "fio-3.33",
                 .fingerprint = {{"cpu_model", "Example CPU @ 2.50GHz"}, {"cpus", 2}, {"kernel", "6.1.0-44-amd64"}}};
  const auto add = [&](const char* queues, const char* persistent, const std::vector<double>& iops) {
    const std::string id = std::string("g2-q") + queues + (*persistent == 'o' && persistent[1] == 'n' ? "-" : "-no") +
                           "persistent-randread-bs4k-qd32";
    results.points.push_back(example_point(id,
                                           {{"guests", "2"},
                                            {"queues", queues},
                                            {"persistent", persistent},
                                            {"rw", "randread"},
                                            {"bs", "4k"},
                                            {"iodepth", "32"},
                                            {"store", "null:1g"}},
                                           iops));
  };
  add("1", "on", {402'000, 397'500, 405'100});
  add("1", "off", {151'200, 149'900, 155'000});
  add("2", "on", {431'000, 420'300, 440'900});
  add("2", "off", {162'000, 158'700, 160'400});
  return results;
}

}  // namespace xblk::report
