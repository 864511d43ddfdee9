#include "agent/run/guest_run.hpp"

#include <algorithm>

#include "agent/host/files.hpp"

namespace xblk::run {
namespace {

constexpr Nanos kStopGrace = seconds(2);
constexpr std::size_t kTextLimit = std::size_t{1} << 20;

// Both ends said Connected: what else differs is a result, not a stage on the way.
bool both_connected(const toggle::Verification& verification) {
  return std::all_of(verification.checks.begin(), verification.checks.end(),
                     [](const toggle::Check& check) { return check.ok || !check.name.ends_with(" state"); });
}

report::Json published(toggle::KeyAccess& keys, const std::string& directory) {
  report::Json json = report::Json::object();
  for (const auto& [key, value] : toggle::negotiated(keys, directory).value_or(std::map<std::string, std::string>{})) {
    json[key] = value;
  }
  return json;
}

std::string text_of(const std::filesystem::path& file, std::size_t limit) {
  return host::read_file(file, limit).value_or("");
}

}  // namespace

Result<GuestRun> GuestRun::start(host::Host& host, const fio::GuestJob& job, const GuestFiles& files,
                                 const toggle::Vbd& vbd) {
  auto argv = fio::argv(job);
  if (!argv) return tl::unexpected(argv.error());
  // In the directory of its files: fio leaves others of its own, such as the state of a verification.
  auto process = host.spawn({.argv = *argv,
                             .directory = files.fio_output.parent_path(),
                             .standard_output = host::ToFile{files.fio_stdout},
                             .standard_error = host::ToFile{files.fio_stderr}});
  if (!process) return tl::unexpected(process.error());
  return GuestRun(*std::move(process), fio::shell_quoted(*argv), files, vbd);
}

bool GuestRun::verify_connection(toggle::KeyAccess& keys, const toggle::Agreement& agreement) {
  if (connection_verified()) return true;
  auto seen = toggle::verify_keys(keys, vbd_, agreement);
  if (seen.ok()) {
    negotiated_ = {{"front", published(keys, vbd_.frontend_directory())},
                   {"back", published(keys, vbd_.backend_directory())}};
  }
  const bool better = !verification_ || both_connected(seen) || !both_connected(*verification_);
  if (better) verification_ = std::move(seen);
  return connection_verified();
}

bool GuestRun::seen_connected() const {
  return verification_ && both_connected(*verification_);
}

void GuestRun::stop() {
  process_->terminate(kStopGrace);
}

GuestOutcome GuestRun::finish(const fio::Expectation& expectation) {
  GuestOutcome outcome;
  outcome.exit = process_->status().value_or(host::ExitStatus{.ended_by_us = true});
  outcome.result = fio::read_result(text_of(files_.fio_output, fio::kMaxOutputBytes),
                                    text_of(files_.fio_stdout, kTextLimit), text_of(files_.fio_stderr, kTextLimit));
  outcome.verdict = fio::judge(outcome.exit, outcome.result, expectation);
  outcome.window = metrics::read_window(files_.snapshots);
  return outcome;
}

}  // namespace xblk::run
