#include "agent/fio/verdict.hpp"

#include <algorithm>
#include <bit>
#include <cstring>

#include <fmt/format.h>

#include "agent/fio/text.hpp"

namespace xblk::fio {
namespace {

using Finding = std::optional<Verdict>;

constexpr int kInterruptedExitCode = 128;  // fio's own, after SIGINT or SIGTERM
constexpr double kRuntimeTolerance = 0.10;
constexpr double kRuntimeSlackMs = 1000;  // the last I/Os are waited for
constexpr double kDepthSharePercent = 25;

Verdict failed(const std::string& reason) {
  return {Outcome::kFailed, one_line(reason)};
}
Verdict inconclusive(const std::string& reason) {
  return {Outcome::kInconclusive, one_line(reason)};
}

// fio's notes are not errors; of the rest the first line is the cause, the later ones its consequences.
std::string with_cause(std::string reason, const FioResult& result) {
  const auto cause = std::find_if(result.diagnostics.begin(), result.diagnostics.end(),
                                  [](const std::string& line) { return line.find("fio: ") != std::string::npos; });
  return cause == result.diagnostics.end() ? reason : reason + ": " + *cause;
}

Finding check_end(const host::ExitStatus& exit, const FioResult& result) {
  if (exit.signal != 0) return failed("fio was " + exit.describe());
  if (exit.ended_by_us || exit.exit_code == kInterruptedExitCode) return failed("fio was interrupted before its end");
  for (const Job& job : result.jobs) {
    if (job.error == 0) continue;
    const auto line = fmt::format("job '{}' failed with error {} ({})", job.name, job.error, std::strerror(job.error));
    return failed(with_cause(line, result));
  }
  if (exit.exit_code != 0) return failed(with_cause("fio ended with " + exit.describe(), result));
  return std::nullopt;
}

Finding check_form(const FioResult& result, const Expectation& expectation) {
  if (!result.problems.empty()) return failed(with_cause(result.problems.front(), result));
  // fio in client mode ends with 0 and an empty list when the server could not load the engine.
  if (result.jobs.empty()) return failed(with_cause("fio reports no job", result));
  // group_reporting folds the jobs of a group into one entry.
  if (result.jobs.size() != 1 && result.jobs.size() != expectation.jobs) {
    return inconclusive(fmt::format("{} jobs were asked for, {} are reported", expectation.jobs, result.jobs.size()));
  }
  return std::nullopt;
}

Finding check_bytes(Way way, const Direction& direction, const Expectation& expectation) {
  if (direction.io_bytes == 0) return failed(fmt::format("{} completed without moving a byte", name(way)));
  if (!expectation.block_size) return std::nullopt;
  // A detached disk completes I/Os with zero bytes and fio calls that a success. fio counts I/Os when they are issued
  // and bytes when they complete: those in flight at the end of ramp_time may count on one side only.
  const double expected = static_cast<double>(direction.total_ios);
  const double moved = static_cast<double>(direction.io_bytes) / static_cast<double>(expectation.block_size->value());
  const double in_flight = static_cast<double>(expectation.iodepth) * static_cast<double>(expectation.jobs);
  if (moved >= expected - in_flight && moved <= expected + in_flight) return std::nullopt;
  return failed(fmt::format("{}: {} I/Os of {} bytes moved {} bytes: some completed short", name(way),
                            direction.total_ios, expectation.block_size->value(), direction.io_bytes));
}

Finding check_runtime(Way way, const Direction& direction, const FioResult& result, const Expectation& expectation) {
  if (direction.runtime_ms == 0) return failed(fmt::format("{} ran for less than a millisecond", name(way)));
  if (!expectation.runtime) return std::nullopt;
  const bool steady =
      std::all_of(result.jobs.begin(), result.jobs.end(), [](const Job& job) { return job.steady_state_attained; });
  if (steady) return std::nullopt;  // steadystate= ends the job early, on purpose
  const double asked = static_cast<double>(expectation.runtime->value()) / 1e6;
  const auto ran = static_cast<double>(direction.runtime_ms);
  if (ran < asked * (1 - kRuntimeTolerance) || ran > asked * (1 + kRuntimeTolerance) + kRuntimeSlackMs) {
    return inconclusive(fmt::format("{} ran for {} ms, {:.0f} were asked for", name(way), direction.runtime_ms, asked));
  }
  return std::nullopt;
}

Finding check_directions(const FioResult& result, const Expectation& expectation) {
  for (const Way way : expectation.ways) {
    const auto direction = result.sum(way);
    if (!direction) {
      const bool unified = std::any_of(result.jobs.begin(), result.jobs.end(), [](const Job& j) { return j.mixed; });
      if (unified) {
        return inconclusive(fmt::format("unified_rw_reporting hides whether there was any {}", name(way)));
      }
      return failed(fmt::format("{} was asked for and is not reported", name(way)));
    }
    if (direction->total_ios == 0) return failed(fmt::format("{} was asked for and made no I/O", name(way)));
    if (auto finding = check_bytes(way, *direction, expectation)) return finding;
    if (auto finding = check_runtime(way, *direction, result, expectation)) return finding;
  }
  return std::nullopt;
}

// Percent of I/Os at a level of at least `depth`. Levels are powers of two, and everything from 64 on is one.
double share_at_least(const Job& job, unsigned depth) {
  const unsigned level = std::min(std::bit_floor(depth), 64U);
  double share = 0;
  for (unsigned each = level; each <= 64; each *= 2) {
    const auto it = job.iodepth_level.find(each == 64 ? ">=64" : std::to_string(each));
    if (it != job.iodepth_level.end()) share += it->second;
  }
  return share;
}

// A queue that is emptied at once and refilled passes evenly through all depths below the one asked, so the level
// itself may hold little; but it must be reached, and half of it must be common.
Finding check_depth(const FioResult& result, const Expectation& expectation) {
  if (expectation.iodepth <= 1) return std::nullopt;
  for (const Job& job : result.jobs) {
    if (share_at_least(job, expectation.iodepth) > 0 &&
        share_at_least(job, expectation.iodepth / 2) >= kDepthSharePercent) {
      continue;
    }
    return inconclusive(fmt::format("job '{}': depth {} was not reached ({:.1f}% of I/Os at half of it or more)",
                                    job.name, expectation.iodepth, share_at_least(job, expectation.iodepth / 2)));
  }
  return std::nullopt;
}

}  // namespace

Verdict judge(const host::ExitStatus& exit, const FioResult& result, const Expectation& expectation) {
  if (auto finding = check_end(exit, result)) return *finding;
  if (auto finding = check_form(result, expectation)) return *finding;
  if (auto finding = check_directions(result, expectation)) return *finding;
  if (auto finding = check_depth(result, expectation)) return *finding;
  return {};
}

}  // namespace xblk::fio
