// xblk plan: everything a run would do, and nothing done.
#include "agent/cli/command.hpp"
#include "agent/cli/parameter_list.hpp"
#include "agent/cli/profile_options.hpp"
#include "agent/host/limits.hpp"
#include "agent/plan/capacity.hpp"
#include "agent/plan/schema.hpp"
#include "agent/report/format.hpp"
#include "agent/run/experiment.hpp"
#include "agent/run/load.hpp"
#include "agent/run/store_files.hpp"

namespace xblk::cli {
namespace {

using report::Json;

// Stand-ins for the two directories that only a run makes.
const run::HostLayout kHost{"HOST"};
const std::filesystem::path kRun = "RUN";

struct PointPlan {
  std::vector<std::string> fio_commands;
  std::vector<toggle::KeyWrite> writes;
  plan::Capacity capacity;
};

Result<PointPlan> plan_of(const run::Schedule& schedule, const plan::Point& point, const run::Programs& programs) {
  PointPlan out{.capacity = plan::capacity_of(point, schedule.profile.store)};
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
    auto attached = toggle::attach(
        keys, {.vbd = run::vbd_of(guest), .params = plan::store_of_guest(schedule.profile.store, guest)});
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

std::string text_of(const std::vector<run::StoreFile>& files) {
  std::string text = files.empty() ? "" : "\nfiles of the guests' disks\n";
  for (const run::StoreFile& file : files) text += "  " + run::describe(file) + "\n";
  return text;
}

Json json_of(const std::vector<run::StoreFile>& files) {
  Json list = Json::array();
  for (const run::StoreFile& file : files) {
    list.push_back({{"path", file.path.string()},
                    {"use", to_string(file.use)},
                    {"size_bytes", file.size.value()},
                    {"problem", file.problem.empty() ? Json(nullptr) : Json(file.problem)}});
  }
  return list;
}

std::vector<std::string> warnings_of(const PointPlan& planned, const host::Limits& machine) {
  std::vector<std::string> out;
  for (const plan::Limit& limit : plan::limits_of(planned.capacity, machine)) {
    if (limit.exceeded()) out.push_back(plan::warning_of(limit));
  }
  return out;
}

std::string text_of(const std::vector<plan::WorstLimit>& limits) {
  std::string text = "\nlimits, and what the point that needs most can need\n";
  for (const auto& [limit, point] : limits) {
    text += fmt::format("  {:<28} {:>8}  needs {:>8}  {}\n", limit.name, limit.value, limit.need, limit.of);
    if (limit.exceeded()) text += fmt::format("    warning: {} (point {})\n", limit.beyond, point);
  }
  return text;
}

Json json_of(const std::vector<plan::WorstLimit>& limits) {
  Json list = Json::array();
  for (const auto& [limit, point] : limits) {
    list.push_back({{"name", limit.name},
                    {"value", limit.value},
                    {"need", limit.need},
                    {"exceeded", limit.exceeded()},
                    {"of", limit.of},
                    {"beyond", limit.beyond},
                    {"point", point}});
  }
  return list;
}

std::string text_of(const plan::Point& point, const PointPlan& planned, const host::Limits& machine) {
  std::string out =
      fmt::format("\npoint {}\n  needs at most {:.1f} MiB and {} grants per guest, {} mappings in the host\n", point.id,
                  static_cast<double>(planned.capacity.guest_memory.value()) / (1 << 20), planned.capacity.guest_grants,
                  planned.capacity.host_mappings);
  for (const std::string& warning : warnings_of(planned, machine)) out += "  warning: " + warning + "\n";
  out += "  xenstore writes\n";
  out += text_of(planned.writes);
  out += "  fio commands, one per guest\n";
  for (const auto& command : planned.fio_commands) out += "    " + command + "\n";
  return out;
}

Json json_of(const plan::Point& point, const PointPlan& planned, const host::Limits& machine) {
  Json params = Json::object();
  for (const auto& [name, value] : point.params) params[name] = value;
  return {{"id", point.id},
          {"params", std::move(params)},
          {"guest_memory_bytes", planned.capacity.guest_memory.value()},
          {"guest_grants", planned.capacity.guest_grants},
          {"host_mappings", planned.capacity.host_mappings},
          {"warnings", warnings_of(planned, machine)},
          {"xenstore_writes", json_of(planned.writes)},
          {"fio_commands", planned.fio_commands}};
}

double seconds_of(Nanos time) {
  return static_cast<double>(time.value()) / 1e9;
}

Nanos estimated_time(const run::Schedule& schedule) {
  return run::planned_load(schedule) + run::kVisitOverhead * static_cast<std::int64_t>(schedule.visits.size());
}

std::string heading(const run::Schedule& schedule) {
  const auto& profile = schedule.profile;
  return fmt::format(
      "profile {} ({}), platform {}, store {}\n"
      "{} points x {} repeats = {} visits, {} order, seed {}\n"
      "load {:.0f} s, in all about {:.0f} s\n"
      "HOST and RUN stand for the directories of the emulated host and of the results, made when a run starts\n",
      profile.name, profile.source, profile.platform, plan::to_string(profile.store), schedule.points.size(),
      profile.repeats, schedule.visits.size(), plan::to_string(profile.order),
      profile.seed == 0 ? "drawn when the run starts" : std::to_string(profile.seed),
      seconds_of(run::planned_load(schedule)), seconds_of(estimated_time(schedule)));
}

Json json_heading(const run::Schedule& schedule) {
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
          {"estimated_seconds", seconds_of(estimated_time(schedule))}};
}

int plan_profile(const ProfileOptions& options, bool json) {
  const auto schedule = options.schedule(0);
  if (!schedule) return complain(kUsage, schedule.error().message);
  const auto programs = run::own_programs();
  const host::Limits machine = host::limits();
  const auto limits = plan::worst_limits(schedule->points, schedule->profile.store, machine);
  const auto attaching = attach_writes(*schedule);
  if (!attaching) return complain(kUsage, attaching.error().message);
  const auto files = run::store_files(*schedule);
  std::string text = heading(*schedule) + text_of(files) + text_of(limits);
  text += "\nonce per host: attach the guests' disks\n  xenstore writes\n" + text_of(*attaching);
  Json document = json_heading(*schedule);
  document["limits"] = json_of(limits);
  document["store_files"] = json_of(files);
  document["attach_writes"] = json_of(*attaching);
  document["points"] = Json::array();
  for (const plan::Point& point : schedule->points) {
    const auto planned = plan_of(*schedule, point, programs);
    if (!planned) return complain(kUsage, planned.error().message);
    text += text_of(point, *planned, machine);
    document["points"].push_back(json_of(point, *planned, machine));
  }
  return print(json ? document.dump(2) + "\n" : text);
}

struct PlanOptions {
  ProfileOptions profile;
  bool json = false;
  bool list_policies = false;
  bool schema = false;
};

int plan(const PlanOptions& options) {
  if (options.schema) return print(plan::profile_schema().dump(2) + "\n");
  if (options.list_policies) return print(options.json ? parameter_list_json().dump(2) + "\n" : parameter_list());
  if (options.profile.profile.empty()) return complain(kUsage, "give a profile, --list-policies or --schema");
  return plan_profile(options.profile, options.json);
}

}  // namespace

void add_plan(CLI::App& app, Action& action) {
  auto* command =
      app.add_subcommand("plan", "Show what a run would do: points, fio commands, xenstore writes, capacity");
  command->footer(
      "Examples:\n"
      "  xblk plan profiles/quick.yaml\n"
      "  xblk plan profiles/matrix.yaml --json | jq '.points[].id'\n"
      "  xblk plan --list-policies                 everything that a profile can vary\n"
      "  xblk plan --schema > profile.schema.json  completion in editors\n"
      "It starts nothing and writes nothing.");
  auto options = std::make_shared<PlanOptions>();
  options->profile.add_to(*command);
  command->add_flag("--json", options->json, "The plan as JSON");
  command->add_flag("--list-policies", options->list_policies,
                    "Policies, presets and parameters of the load, with their values and defaults");
  command->add_flag("--schema", options->schema, "The JSON schema of a profile");
  command->callback([=, &action] { action = [=] { return plan(*options); }; });
}

}  // namespace xblk::cli
