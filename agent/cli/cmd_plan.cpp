// xblk plan: everything a run would do, and nothing done.
#include "agent/cli/command.hpp"
#include "agent/cli/profile_options.hpp"
#include "agent/host/files.hpp"
#include "agent/plan/capacity.hpp"
#include "agent/report/format.hpp"
#include "agent/run/experiment.hpp"
#include "agent/run/load.hpp"

namespace xblk::cli {
namespace {

using report::Json;

// Stand-ins for the two directories that only a run makes.
const run::HostLayout kHost{"HOST"};
const std::filesystem::path kRun = "RUN";

std::uint64_t max_map_count() {
  constexpr std::uint64_t kKernelDefault = 65530;
  const auto text = host::read_file("/proc/sys/vm/max_map_count", 64);
  return text ? std::strtoull(text->c_str(), nullptr, 10) : kKernelDefault;
}

struct PointPlan {
  std::vector<std::string> fio_commands;
  std::vector<toggle::KeyWrite> writes;
  plan::Capacity capacity;
};

Result<PointPlan> plan_of(const plan::Point& point, const run::Programs& programs) {
  PointPlan out{.capacity = plan::capacity_of(point)};
  for (unsigned guest = 1; guest <= point.guests; ++guest) {
    const auto vbd = run::vbd_of(guest);
    const auto files = run::GuestFiles::in(kRun / run::RunLayout::visit(point.id, 0), vbd.guest);
    const auto job = run::job_of(point, programs, kHost, guest, files);
    if (!job) return tl::unexpected(job.error());
    const auto argv = fio::argv(*job);
    if (!argv) return tl::unexpected(argv.error());
    out.fio_commands.push_back(fio::shell_quoted(*argv));
    for (auto& write : toggle::plan(vbd, run::policies_of(point))) out.writes.push_back(std::move(write));
  }
  return out;
}

// Notes what would be written; nothing exists yet.
class RecordingKeys final : public toggle::KeyAccess {
 public:
  Result<std::string> read(const std::string& path) override { return fail(ENOENT, path); }
  Status write(const std::string& path, const std::string& value) override {
    writes.push_back({path, value});
    return {};
  }
  Status remove(const std::string&) override { return {}; }
  Result<std::map<std::string, std::string>> read_tree(const std::string& path) override { return fail(ENOENT, path); }
  Status set_permissions(const std::string&, DomId, std::span<const KeyPermission>) override { return {}; }
  Status transaction(const std::function<Status()>& body) override { return body(); }

  std::vector<toggle::KeyWrite> writes;
};

// What attaching the disks writes, once for each host that is started.
Result<std::vector<toggle::KeyWrite>> attach_writes(const run::Schedule& schedule) {
  unsigned guests = 0;
  for (const plan::Point& point : schedule.points) guests = std::max(guests, point.guests);
  RecordingKeys keys;
  for (unsigned guest = 1; guest <= guests; ++guest) {
    auto attached =
        toggle::attach(keys, {.vbd = run::vbd_of(guest), .params = plan::to_string(schedule.profile.store)});
    if (!attached) return tl::unexpected(attached.error());
  }
  return keys.writes;
}

Json json_of(const std::vector<toggle::KeyWrite>& writes) {
  Json list = Json::array();
  for (const auto& write : writes) list.push_back({{"path", write.path}, {"value", write.value}});
  return list;
}

std::string text_of(const std::vector<toggle::KeyWrite>& writes) {
  std::string text;
  for (const auto& write : writes) text += fmt::format("    {} = {}\n", write.path, write.value);
  return text;
}

std::string text_of(const plan::Point& point, const PointPlan& planned, std::uint64_t map_limit) {
  std::string out =
      fmt::format("\npoint {}\n  needs at most {:.1f} MiB and {} grants per guest, {} mappings in the host\n", point.id,
                  static_cast<double>(planned.capacity.guest_memory.value()) / (1 << 20), planned.capacity.guest_grants,
                  planned.capacity.host_mappings);
  if (const auto warning = plan::capacity_warning(planned.capacity, map_limit)) out += "  warning: " + *warning + "\n";
  out += "  xenstore writes\n";
  out += text_of(planned.writes);
  out += "  fio commands, one per guest\n";
  for (const auto& command : planned.fio_commands) out += "    " + command + "\n";
  return out;
}

Json json_of(const plan::Point& point, const PointPlan& planned, std::uint64_t map_limit) {
  Json params = Json::object();
  for (const auto& [name, value] : point.params) params[name] = value;
  const auto warning = plan::capacity_warning(planned.capacity, map_limit);
  return {{"id", point.id},
          {"params", std::move(params)},
          {"guest_memory_bytes", planned.capacity.guest_memory.value()},
          {"guest_grants", planned.capacity.guest_grants},
          {"host_mappings", planned.capacity.host_mappings},
          {"warning", warning ? Json(*warning) : Json(nullptr)},
          {"xenstore_writes", json_of(planned.writes)},
          {"fio_commands", planned.fio_commands}};
}

double seconds_of(Nanos time) {
  return static_cast<double>(time.value()) / 1e9;
}

Nanos estimated_time(const run::Schedule& schedule) {
  return run::planned_load(schedule) + run::kVisitOverhead * static_cast<std::int64_t>(schedule.visits.size());
}

std::string heading(const run::Schedule& schedule, std::uint64_t map_limit) {
  const auto& profile = schedule.profile;
  return fmt::format(
      "profile {} ({}), platform {}, store {}\n"
      "{} points x {} repeats = {} visits, {} order, seed {}\n"
      "load {:.0f} s, in all about {:.0f} s; vm.max_map_count is {}\n"
      "HOST and RUN stand for the directories of the emulated host and of the results, made when a run starts\n",
      profile.name, profile.source, profile.platform, plan::to_string(profile.store), schedule.points.size(),
      profile.repeats, schedule.visits.size(), plan::to_string(profile.order),
      profile.seed == 0 ? "drawn when the run starts" : std::to_string(profile.seed),
      seconds_of(run::planned_load(schedule)), seconds_of(estimated_time(schedule)), map_limit);
}

Json json_heading(const run::Schedule& schedule, std::uint64_t map_limit) {
  const auto& profile = schedule.profile;
  return {{"format", "xblk-plan"},
          {"version", 1},
          {"profile", profile.name},
          {"platform", profile.platform},
          {"store", plan::to_string(profile.store)},
          {"repeats", profile.repeats},
          {"visits", schedule.visits.size()},
          {"order", plan::to_string(profile.order)},
          {"seed", profile.seed == 0 ? Json(nullptr) : Json(profile.seed)},
          {"load_seconds", seconds_of(run::planned_load(schedule))},
          {"estimated_seconds", seconds_of(estimated_time(schedule))},
          {"max_map_count", map_limit}};
}

int plan_profile(const ProfileOptions& options, bool json) {
  const auto schedule = options.schedule(0);
  if (!schedule) return complain(kUsage, schedule.error().message);
  const auto programs = run::own_programs();
  const std::uint64_t map_limit = max_map_count();
  const auto attaching = attach_writes(*schedule);
  if (!attaching) return complain(kUsage, attaching.error().message);
  std::string text = heading(*schedule, map_limit);
  text += "\nonce per host: attach the guests' disks\n  xenstore writes\n" + text_of(*attaching);
  Json document = json_heading(*schedule, map_limit);
  document["attach_writes"] = json_of(*attaching);
  document["points"] = Json::array();
  for (const plan::Point& point : schedule->points) {
    const auto planned = plan_of(point, programs);
    if (!planned) return complain(kUsage, planned.error().message);
    text += text_of(point, *planned, map_limit);
    document["points"].push_back(json_of(point, *planned, map_limit));
  }
  return print(json ? document.dump(2) + "\n" : text);
}

}  // namespace

void add_plan(CLI::App& app, Action& action) {
  auto* command =
      app.add_subcommand("plan", "Show what a run would do: points, fio commands, xenstore writes, capacity");
  command->footer(
      "Examples:\n"
      "  xblk plan profiles/quick.yaml\n"
      "  xblk plan profiles/matrix.yaml --json | jq '.points[].id'\n"
      "It starts nothing and writes nothing.");
  auto options = std::make_shared<ProfileOptions>();
  auto json = std::make_shared<bool>(false);
  options->add_to(*command)->required();
  command->add_flag("--json", *json, "The plan as JSON");
  command->callback([=, &action] { action = [=] { return plan_profile(*options, *json); }; });
}

}  // namespace xblk::cli
