#include "agent/fio/job.hpp"

#include <algorithm>
#include <array>
#include <string_view>

#include <fmt/format.h>

namespace xblk::fio {
namespace {

struct OwnOption {
  std::string_view name;
  std::string_view instead;
};

// Options that a profile may not pass, because the intake or the engine depends on them.
constexpr auto kOwnOptions = std::to_array<OwnOption>({
    {"output", "the run directory"},
    {"minimal", "the run directory"},
    {"eta", "xblk's own progress"},
    {"client", "the parameter 'guests'"},
    {"server", "the parameter 'guests'"},
    {"daemonize", "nothing: xblk waits for fio"},
    {"showcmd", "xblk plan"},
    {"section", "one profile point per workload"},
    {"name", "one profile point per workload"},
    {"new_group", "one profile point per workload"},
    {"stonewall", "one profile point per workload"},
    {"wait_for", "one profile point per workload"},
    {"thread", "nothing: the engine needs threads"},
    {"group_reporting", "nothing: percentiles of separate entries cannot be combined"},
    {"unified_rw_reporting", "nothing: directions are proven one by one"},
    {"disable_lat", "nothing: latency is part of every result"},
    {"gtod_reduce", "nothing: latency is part of every result"},
    {"lat_percentiles", "nothing: latency is part of every result"},
    {"clat_percentiles", "nothing: latency is part of every result"},
    {"ioengine", "nothing: the load goes through the reference frontend"},
    {"filename", "nothing: the guest has one disk"},
    {"rw", "the parameter 'rw'"},
    {"readwrite", "the parameter 'rw'"},
    {"bs", "the parameter 'bs'"},
    {"blocksize", "the parameter 'bs'"},
    {"iodepth", "the parameter 'iodepth'"},
    {"numjobs", "the parameter 'jobs'"},
    {"runtime", "the parameter 'runtime'"},
    {"timeout", "the parameter 'runtime'"},
    {"time_based", "the parameter 'runtime'"},
    {"ramp_time", "the parameter 'ramp'"},
    {"size", "the parameter 'size'"},
});

// Options of a job have no '-'; those that have one are fio's own (output-format, status-interval, idle-prof, ...).
bool is_job_option_name(std::string_view name) {
  return !name.empty() && std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_';
  });
}

std::string milliseconds(Nanos time) {
  return fmt::format("{}ms", time.value() / 1'000'000);
}

std::string quoted(const std::string& word) {
  constexpr std::string_view kPlain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=:,./@%^";
  if (!word.empty() && word.find_first_not_of(kPlain) == std::string::npos) return word;
  std::string text = "'";
  for (const char c : word) text += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return text + "'";
}

void append_engine(std::vector<std::string>& words, const Engine& engine) {
  // fio knows an engine's options only after ioengine= has loaded it.
  words.push_back("--ioengine=external:" + engine.library.string());
  words.push_back("--xblk_hypervisor=" + engine.hypervisor_socket.string());
  words.push_back(fmt::format("--xblk_domid={}", engine.domid.value()));
  words.push_back("--xblk_device=" + engine.device);
  words.push_back("--xblk_xenstore=" + engine.xenstore_socket.string());
  words.push_back("--xblk_snapshots=" + engine.snapshots.string());
  words.push_back("--xblk_statistics=" + engine.statistics.string());
}

}  // namespace

Status check_passed_option(const std::string& name) {
  if (!is_job_option_name(name)) return fail(EINVAL, fmt::format("'{}' is not the name of a fio job option", name));
  if (name.starts_with("xblk_")) return fail(EINVAL, fmt::format("fio option '{}' is set by xblk itself", name));
  const auto own = std::find_if(kOwnOptions.begin(), kOwnOptions.end(), [&](const auto& o) { return o.name == name; });
  if (own == kOwnOptions.end()) return {};
  return fail(EINVAL, fmt::format("fio option '{}' is set by xblk itself; use {}", name, own->instead));
}

Result<std::vector<std::string>> argv(const GuestJob& job) {
  // The format comes first: with a job before it, fio prints that job's banner in front of the JSON.
  std::vector<std::string> words{job.program.string(), "--output-format=json+", "--output=" + job.output.string(),
                                 "--eta=never", "--name=" + job.name};
  // Threads, because fio forks its jobs by default and guests' memory is mapped once. One entry for all jobs, because
  // percentiles of several cannot be combined. lat, because clat hides the time before the engine took the I/O.
  for (const char* fixed : {"--thread=1", "--group_reporting=1", "--lat_percentiles=1", "--clat_percentiles=0"}) {
    words.emplace_back(fixed);
  }
  append_engine(words, job.engine);
  words.push_back("--rw=" + job.pattern);
  words.push_back(fmt::format("--bs={}", job.block_size.value()));
  words.push_back(fmt::format("--iodepth={}", job.iodepth));
  words.push_back(fmt::format("--numjobs={}", job.jobs));
  if (job.size) words.push_back(fmt::format("--size={}", job.size->value()));
  if (job.runtime) {
    words.push_back("--runtime=" + milliseconds(*job.runtime));
    if (job.time_based) words.emplace_back("--time_based=1");
  }
  if (job.ramp) words.push_back("--ramp_time=" + milliseconds(*job.ramp));
  for (const auto& [name, value] : job.options) {
    if (auto status = check_passed_option(name); !status) return tl::unexpected(status.error());
    words.push_back(value.empty() ? "--" + name : fmt::format("--{}={}", name, value));
  }
  return words;
}

std::string shell_quoted(const std::vector<std::string>& words) {
  std::string line;
  for (const std::string& word : words) line += (line.empty() ? "" : " ") + quoted(word);
  return line;
}

}  // namespace xblk::fio
