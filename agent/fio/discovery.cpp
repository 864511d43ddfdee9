#include "agent/fio/discovery.hpp"

#include <fmt/format.h>

#include "agent/fio/text.hpp"

namespace xblk::fio {
namespace {

constexpr Nanos kPatience = seconds(10);
constexpr std::string_view kInstall = "on Debian: 'apt-get install fio'";

}  // namespace

Result<Found> find(host::Host& host, const std::filesystem::path& program) {
  auto process = host.spawn({.argv = {program.string(), "--version"}, .standard_output = host::Capture{4096}});
  if (!process) return fail(process.error().code, fmt::format("{}; {}", process.error().message, kInstall));
  host::Process* list[] = {process->get()};
  const Instant deadline = host.now() + kPatience;
  while (!(*process)->status() && host.now() < deadline) host.wait(list, deadline);
  const auto status = (*process)->status();
  if (!status) {
    (*process)->terminate(millis(100));
    return fail(ETIMEDOUT, fmt::format("'{} --version' did not answer within 10 s", program.string()));
  }
  const std::string text = one_line((*process)->captured_output());
  const auto version = parse_version(text);
  if (!status->success() || !version) {
    return fail(EINVAL, fmt::format("'{} --version' is not fio ({}, printed '{}'); {}", program.string(),
                                    status->describe(), text, kInstall));
  }
  if (*version < kMinimumVersion) {
    return fail(EINVAL, fmt::format("{} is too old: {} or later is needed", text, kMinimumVersion.text()));
  }
  return Found{program, *version, text};
}

std::optional<Version> engine_version() {
#ifdef XBLK_FIO_VERSION
  return parse_version(XBLK_FIO_VERSION);
#else
  return std::nullopt;
#endif
}

Status check_engine(const Found& found, const std::optional<Version>& built_for) {
  if (!built_for) {
    return fail(ENOENT, "this build has no fio engine; run ci/setup, which fetches fio's headers, and build again");
  }
  if (found.version == *built_for) return {};
  return fail(EINVAL,
              fmt::format("the engine was built for fio {}, {} is {}; run ci/setup and build again, or install fio {}",
                          built_for->text(), found.program.string(), found.version_text, built_for->text()));
}

}  // namespace xblk::fio
