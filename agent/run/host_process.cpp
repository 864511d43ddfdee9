#include "agent/run/host_process.hpp"

#include <fmt/format.h>

#include "agent/fio/text.hpp"
#include "agent/host/files.hpp"

namespace xblk::run {
namespace {

constexpr Nanos kReadyPatience = seconds(20);
constexpr Nanos kReadyInterval = millis(5);
constexpr Nanos kHostStopGrace = seconds(5);
constexpr std::string_view kSpeaker = "xblk-emu-host: ";  // how the host begins its lines
constexpr std::size_t kLogLimit = std::size_t{16} << 20;

std::string last_line(const std::filesystem::path& log) {
  const auto text = host::read_file(log, kLogLimit);
  if (!text) return "";
  const auto end = text->find_last_not_of("\r\n");
  if (end == std::string::npos) return "";
  const auto begin = text->find_last_of('\n', end);
  auto line = fio::one_line(text->substr(begin == std::string::npos ? 0 : begin + 1, end - begin));
  return line.starts_with(kSpeaker) ? line.substr(kSpeaker.size()) : line;
}

std::string describe_end(const host::ExitStatus& status, const std::filesystem::path& log) {
  const std::string words = last_line(log);
  return fmt::format("the emulated host ended ({}){}", status.describe(), words.empty() ? "" : ": " + words);
}

}  // namespace

std::vector<std::string> host_command(const HostProcessConfig& config) {
  std::vector<std::string> words{config.program.string(),
                                 "--dir",
                                 config.layout.directory.string(),
                                 "--guests",
                                 std::to_string(config.spec.guests),
                                 "--guest-memory",
                                 std::to_string(config.spec.guest_memory_mib)};
  for (const auto& [policy, value] : config.spec.host) {
    words.push_back("--" + policy);
    words.push_back(value);
  }
  if (!config.outlives_us) words.emplace_back("--die-with-parent");
  return words;
}

Result<HostProcess> HostProcess::start(host::Host& host, const HostProcessConfig& config) {
  auto process = host.spawn({.argv = host_command(config),
                             .standard_output = host::Capture{4096},
                             .standard_error = host::ToFile{config.log},
                             .outlives_us = config.outlives_us});
  if (!process) return tl::unexpected(process.error());
  HostProcess started(*std::move(process), config.log);
  host::Process* list[] = {started.process_.get()};
  const Instant deadline = host.now() + kReadyPatience;
  for (;;) {
    if (const auto status = started.process_->status()) return fail(EIO, describe_end(*status, config.log));
    if (started.process_->captured_output().find("ready\n") != std::string::npos) return started;
    std::string why;
    if (host.signals().stage >= 2) why = "interrupted while the emulated host was starting";
    if (host.now() >= deadline)
      why = fmt::format("the emulated host was not ready within 20 s; see {}", config.log.string());
    if (!why.empty()) {
      started.stop();
      return fail(EINTR, why);
    }
    host.wait(list, host.now() + kReadyInterval);
  }
}

std::optional<std::string> HostProcess::failure() {
  const auto status = process_->status();
  if (!status) return std::nullopt;
  return describe_end(*status, log_);
}

void HostProcess::stop() {
  process_->terminate(kHostStopGrace);
}

}  // namespace xblk::run
