// xblk doctor: what works on this machine, and what to do about the rest.
#include <sys/mman.h>
#include <unistd.h>

#include "agent/cli/command.hpp"
#include "agent/cli/profile_options.hpp"
#include "agent/fio/discovery.hpp"
#include "agent/host/files.hpp"
#include "agent/host/limits.hpp"
#include "agent/host/linux/linux_host.hpp"
#include "agent/plan/capacity.hpp"
#include "agent/run/emu_rig.hpp"
#include "agent/toggle/journal.hpp"

namespace xblk::cli {
namespace {

namespace fs = std::filesystem;

enum class Grade { ok, note, broken };  // a note costs something, but nothing stops

struct Finding {
  std::string name;
  Grade grade = Grade::ok;
  std::string detail;
};

Finding from(std::string name, const Status& status, std::string good) {
  if (status) return {std::move(name), Grade::ok, std::move(good)};
  return {std::move(name), Grade::broken, status.error().message};
}

void check_fio(std::vector<Finding>& findings, host::Host& host) {
  const auto found = fio::find(host);
  if (!found) {
    findings.push_back({"fio", Grade::broken, found.error().message});
    return;
  }
  findings.push_back({"fio", Grade::ok, found->version_text});
  findings.push_back(from("engine", fio::check_engine(*found, fio::engine_version()), "built for this fio"));
}

// Loads the engine in the real fio, which then checks its own structures against those it was built with.
Status try_engine(host::Host& host, const run::Programs& programs) {
  auto process = host.spawn({.argv = {programs.fio.string(), "--enghelp=" + programs.engine.string()},
                             .standard_output = host::Capture{},
                             .standard_error = host::Capture{}});
  if (!process) return tl::unexpected(process.error());
  host::Process* list[] = {process->get()};
  const Instant deadline = host.now() + seconds(10);
  while (!(*process)->status() && host.now() < deadline) host.wait(list, deadline);
  const std::string said = (*process)->captured_output() + (*process)->captured_error();
  if (said.find("xblk_device") != std::string::npos) return {};
  return fail(ENOEXEC,
              fmt::format("fio cannot load {}: {}", programs.engine.string(), said.substr(0, said.find('\n'))));
}

// The whole emulation, for a moment: socket, xenstored, shim.
Status try_host(host::Host& host, const run::Programs& programs) {
  std::error_code ignored;
  const fs::path log = fs::temp_directory_path(ignored) / fmt::format("xblk-doctor-{}.log", ::getpid());
  run::EmuRig rig(host, programs, log);
  const auto started = rig.start({});
  rig.stop();
  fs::remove(log, ignored);
  return started;
}

Status try_memfd() {
  const int fd = ::memfd_create("xblk-doctor", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (fd < 0) return fail_errno("memfd_create");
  ::close(fd);
  return {};
}

Status try_state_directory() {
  const auto directory = toggle::default_state_directory();
  if (!directory) return tl::unexpected(directory.error());
  std::error_code error;
  fs::create_directories(*directory, error);
  if (error) return tl::unexpected(host::storage_error(error.value(), "create", *directory));
  if (::access(directory->c_str(), W_OK) != 0)
    return tl::unexpected(host::storage_error(errno, "write in", *directory));
  return {};
}

// Against a profile what it needs; without one the limits alone.
void check_limits(std::vector<Finding>& findings, const std::optional<run::Schedule>& schedule) {
  const auto machine = host::limits();
  if (!schedule) {
    for (const plan::Limit& limit : plan::limits_of({}, machine)) {
      findings.push_back({limit.name, Grade::ok, fmt::format("{} {}", limit.value, limit.of)});
    }
    return;
  }
  for (const auto& [limit, point] : plan::worst_limits(schedule->points, schedule->profile.store, machine)) {
    if (limit.exceeded()) {
      findings.push_back(
          {limit.name, Grade::note,
           fmt::format("{} {}; point {} can need {}: {}", limit.value, limit.of, point, limit.need, limit.beyond)});
    } else {
      findings.push_back({limit.name, Grade::ok, fmt::format("{} {}; {} at most", limit.value, limit.of, limit.need)});
    }
  }
}

void check_machine(std::vector<Finding>& findings) {
  constexpr std::uint64_t kMemoryMiB = 1024;
  const std::uint64_t free_mib = static_cast<std::uint64_t>(::sysconf(_SC_AVPHYS_PAGES)) *
                                 static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE)) / (1 << 20);
  findings.push_back(
      {"free memory", free_mib >= kMemoryMiB ? Grade::ok : Grade::note, fmt::format("{} MiB", free_mib)});
  const long cpus = ::sysconf(_SC_NPROCESSORS_ONLN);
  findings.push_back({"CPUs", cpus >= 2 ? Grade::ok : Grade::note,
                      fmt::format("{}{}", cpus, cpus >= 2 ? "" : ": guests and backend share one; no TLB shootdowns")});
}

void check_journals(std::vector<Finding>& findings) {
  const auto directory = toggle::default_state_directory();
  const auto journals = directory ? toggle::abandoned_journals(*directory) : tl::unexpected(directory.error());
  if (!journals || journals->empty()) return;
  findings.push_back(
      {"killed runs", Grade::note, fmt::format("{} left keys changed; see 'xblk restore --list'", journals->size())});
}

void check_interrupts(std::vector<Finding>& findings, host::Host& host) {
  const auto interrupts = host.interrupts();
  const bool counted = interrupts && interrupts->sum("TLB");
  findings.push_back({"TLB shootdown counter", counted ? Grade::ok : Grade::note,
                      counted ? "/proc/interrupts has a TLB row"
                              : "/proc/interrupts has no TLB row: results come without tlb_ipis_per_io"});
}

std::vector<Finding> examine(host::Host& host, const std::optional<run::Schedule>& schedule) {
  std::vector<Finding> findings;
  const auto programs = run::own_programs();
  check_fio(findings, host);
  const auto present = run::check_present(programs);
  findings.push_back(from("programs", present, programs.emu_host.parent_path().string()));
  if (present) {
    findings.push_back(from("engine in fio", try_engine(host, programs), "loads"));
    findings.push_back(from("emulated host", try_host(host, programs), "starts, with the unmodified xenstored"));
  }
  findings.push_back(from("sealed memory", try_memfd(), "memfd_create works"));
  findings.push_back(from("state directory", try_state_directory(), "writable"));
  check_journals(findings);
  check_machine(findings);
  check_limits(findings, schedule);
  check_interrupts(findings, host);
  std::error_code ignored;
  const bool xen = fs::exists("/proc/xen/capabilities", ignored);
  findings.push_back({"Xen", Grade::note, xen ? "this is a Xen domain" : "not here: the emulation is what can run"});
  return findings;
}

std::string_view to_string(Grade grade) {
  return grade == Grade::ok ? "ok" : grade == Grade::note ? "note" : "broken";
}

int doctor(const std::string& profile, bool json) {
  auto host = host::create_linux_host();
  if (!host) return complain(kEnvironment, host.error().message);
  std::optional<run::Schedule> schedule;
  if (!profile.empty()) {
    auto read = ProfileOptions{.profile = profile}.schedule(0);
    if (!read) return complain(kUsage, read.error().message);
    schedule = *std::move(read);
  }
  const auto findings = examine(**host, schedule);
  report::Json list = report::Json::array();
  std::string text;
  bool broken = false;
  for (const Finding& finding : findings) {
    broken = broken || finding.grade == Grade::broken;
    list.push_back({{"check", finding.name}, {"grade", to_string(finding.grade)}, {"detail", finding.detail}});
    text += fmt::format("{:<7} {:<29} {}\n", to_string(finding.grade), finding.name, finding.detail);
  }
  text += broken ? "\nexperiments cannot run here until what is broken is repaired\n" : "\nexperiments can run here\n";
  const int code = broken ? kEnvironment : kOk;
  if (json) return print(report::Json{{"ok", !broken}, {"checks", list}}.dump(2) + "\n", code);
  return print(text, code);
}

}  // namespace

void add_doctor(CLI::App& app, Action& action) {
  auto* command = app.add_subcommand("doctor", "Check what works on this machine, and say what to install");
  command->footer(
      "Examples:\n  xblk doctor profiles/matrix.yaml     the limits that this profile meets\n  xblk doctor --json | jq "
      "-r '.checks[] | select(.grade != \"ok\") | .detail'\n"
      "Exit code 5 when experiments cannot run.");
  auto json = std::make_shared<bool>(false);
  auto profile = std::make_shared<std::string>();
  command->add_option("profile", *profile, "Hold the limits of this machine against what the profile needs");
  command->add_flag("--json", *json, "The findings as JSON");
  command->callback([=, &action] { action = [=] { return doctor(*profile, *json); }; });
}

}  // namespace xblk::cli
