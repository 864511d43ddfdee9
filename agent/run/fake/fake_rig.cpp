#include "agent/run/fake/fake_rig.hpp"

#include <fstream>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "agent/run/load.hpp"
#include "agent/toggle/verify.hpp"
#include "drivers/base/counters.hpp"

namespace xblk::run {
namespace {

using nlohmann::json;

std::string option(const host::ProcessSpec& spec, const std::string& name) {
  for (const std::string& word : spec.argv) {
    if (word.starts_with("--" + name + "=")) return word.substr(name.size() + 3);
  }
  return "";
}

json queue(const std::map<std::string, std::uint64_t>& set) {
  json counters;
  for (const auto name : kCounterNames) counters[std::string(name)] = 0;
  for (const auto& [name, value] : set) counters.at(name) = value;
  json gauges;
  for (const auto name : kGaugeNames) gauges[std::string(name)] = 0;
  return {{"counters", counters}, {"gauges", gauges}};
}

json snapshot(const char* phase, std::int64_t monotonic_ns, const json& front, const json& back) {
  return {{"phase", phase},
          {"monotonic_ns", monotonic_ns},
          {"process_cpu_ns", monotonic_ns / 2},
          {"tlb_ipis", 0},
          {"front", {{"generation", 1}, {"queues", {front}}}},
          {"back", {{"generation", 1}, {"queues", {back}}}}};
}

void write_snapshots(const std::string& path, const FakeGuest& guest) {
  std::ofstream file(path);
  const json front =
      queue({{"ios", guest.ios}, {"requests", guest.ios}, {"copied_bytes", guest.maps == 0 ? 4096 * guest.ios : 0}});
  json back = queue({{"requests", guest.ios},
                     {"requests_read", guest.ios},
                     {"batches", guest.ios},
                     {"persistent_hits", guest.persistent_hits},
                     {"maps", guest.maps},
                     {"unmaps", guest.maps},
                     {"unmap_calls", guest.maps}});
  if (guest.persistent_hits > 0) back["gauges"]["persistent_cached"] = 1;
  file << snapshot("start", 1, queue({}), queue({})).dump() << '\n'
       << snapshot("end", 1'000'000'000, front, back).dump() << '\n';
}

void write_result(const std::string& path, const FakeGuest& guest) {
  const json lat = {
      {"min", 1000}, {"max", 9000}, {"mean", 3000.0}, {"N", guest.fio_ios}, {"percentile", {{"50.000000", 2500}}}};
  const json read = {
      {"io_bytes", guest.fio_ios * 4096}, {"total_ios", guest.fio_ios}, {"runtime", 1000}, {"lat_ns", lat}};
  const json job = {{"jobname", "guest"}, {"error", 0}, {"read", read}, {"iodepth_level", {{"1", 100.0}}}};
  std::ofstream(path) << json{{"fio version", "fio-3.33"}, {"jobs", {job}}}.dump(2) << '\n';
}

// A backend that is told to close does so at once.
void close_when_asked(toggle::FakeKeys& keys) {
  for (auto& [path, value] : keys.keys) {
    if (path.starts_with("/local/domain/0/backend/") && path.ends_with("/state") && value == "5") value = "6";
  }
}

}  // namespace

FakeRig::FakeRig() {
  keys_.drivers = close_when_asked;
}

Status FakeRig::start(const RigSpec& spec) {
  starts.push_back(spec);
  died.reset();
  keys_.keys.clear();
  keys_.gone = false;
  return start_result;
}

void FakeRig::stop() {}

void FakeRig::connect(unsigned domid, const FakeGuest& behaviour) {
  const auto vbd = vbd_of(domid);
  toggle::Policies policies;
  for (auto& [directory, map] :
       {std::pair{vbd.frontend_directory(), &policies.front}, std::pair{vbd.backend_directory(), &policies.back}}) {
    *map = keys_.read_tree(directory + "/xblk-policy").value();
  }
  const auto agreement = toggle::agreement_of(policies).value();
  std::map<std::string, std::string> shared{{"persistent", agreement.persistent ? "1" : "0"},
                                            {"queues", std::to_string(agreement.queues)},
                                            {"ring-page-order", std::to_string(agreement.ring_page_order)}};
  shared["protocol"] = "x86_64-abi";
  for (const auto& directory : {vbd.frontend_directory(), vbd.backend_directory()}) {
    const bool front = directory == vbd.frontend_directory();
    const auto back = blkif::to_keys(agreement.back);
    auto published = front ? blkif::to_keys(agreement.front) : back;
    for (const auto& [key, value] : shared) published[key] = value;
    if (front) {
      for (const char* offer : {"ordering", "discard"}) published[offer] = back.at(offer);
      published["indirect-segments"] = std::to_string(agreement.indirect_segments);
    } else if (agreement.persistent) {
      published["data-path"] = "persistent";
    }
    for (const auto& [key, value] : behaviour.published_instead) published[key] = value;
    for (const auto& [key, value] : published) keys_.keys[directory + "/xblk-negotiated/" + key] = value;
    keys_.keys[directory + "/state"] = "4";
  }
}

void FakeRig::disconnect(unsigned domid) {
  const auto vbd = vbd_of(domid);
  for (const auto& directory : {vbd.frontend_directory(), vbd.backend_directory()}) {
    if (keys_.keys.contains(directory + "/state")) keys_.keys[directory + "/state"] = "6";
    std::erase_if(keys_.keys, [&](const auto& key) { return key.first.starts_with(directory + "/xblk-negotiated/"); });
  }
}

Result<host::FakeLife> FakeRig::play_fio(const host::ProcessSpec& spec) {
  const FakeGuest behaviour = guest(fios_++);
  const auto domid = static_cast<unsigned>(std::stoul(option(spec, "xblk_domid")));
  if (behaviour.at_start) behaviour.at_start();
  if (behaviour.connects) connect(domid, behaviour);
  host::FakeLife life{.lifetime = behaviour.ends_by_itself ? seconds(1) : seconds(1'000'000), .exit = behaviour.exit};
  life.at_end = [this, domid, behaviour, output = option(spec, "output"), snapshots = option(spec, "xblk_snapshots")] {
    disconnect(domid);
    if (behaviour.exit.signal != 0) return;
    write_result(output, behaviour);
    write_snapshots(snapshots, behaviour);
  };
  return life;
}

}  // namespace xblk::run
