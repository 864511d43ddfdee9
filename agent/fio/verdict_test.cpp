#include "agent/fio/verdict.hpp"

#include <csignal>
#include <filesystem>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "agent/host/files.hpp"

namespace xblk::fio {
namespace {

using testing::HasSubstr;

const std::filesystem::path kFixtures = std::filesystem::path(XBLK_SOURCE_DIR) / "agent" / "fio" / "testdata";

struct FixtureCase {
  const char* file;
  int exit_code;  // as fio ended when the file was recorded
  Expectation asked;
  Outcome outcome;
  const char* reason;  // part of it
};

Expectation reads(unsigned iodepth = 1, unsigned jobs = 1, std::optional<Nanos> runtime = {}) {
  return {.ways = {Way::kRead}, .runtime = runtime, .iodepth = iodepth, .jobs = jobs, .block_size = Bytes(4096)};
}

// Output of fio 3.33, recorded from runs that readers are known to trip over.
const FixtureCase kCases[] = {
    {"1.out", 0, reads(8), Outcome::kInconclusive, "depth 8 was not reached"},  // synchronous engine
    {"3.out", 0, reads(1, 1, seconds(3)), Outcome::kOk, ""},                    // four cumulative documents
    {"4.out", 1, {.ways = {Way::kWrite}, .block_size = Bytes(4096)}, Outcome::kFailed, "No space left on device"},
    {"5.out", 128, reads(1, 1, seconds(30)), Outcome::kFailed, "interrupted"},  // SIGINT
    {"6.out", 0, reads(1, 2), Outcome::kOk, ""},                                // client mode, "All clients"
    {"7.out", 0, reads(), Outcome::kOk, ""},                                    // repeated keys
    {"8.out", 0, reads(), Outcome::kOk, ""},                                    // control characters, invalid UTF-8
    {"9.out", 0, reads(), Outcome::kOk, ""},                                    // no percentiles for writes
    {"10.out", 0, reads(), Outcome::kOk, ""},                                   // gtod_reduce: no latency at all
    {"11.out", 0, reads(), Outcome::kOk, ""},                                   // lat_percentiles
    {"12.out", 0, {.ways = {Way::kRead, Way::kWrite}}, Outcome::kInconclusive, "unified_rw_reporting"},
    {"13.out", 0, reads(1, 3), Outcome::kOk, ""},                                // three jobs grouped into one entry
    {"14.out", 0, reads(), Outcome::kOk, ""},                                    // text, JSON, text
    {"33.out", 0, reads(), Outcome::kFailed, "engine nosuch not loadable"},      // client mode: exit code 0!
    {"36.out", 0, reads(), Outcome::kFailed, "no JSON document"},                // terse
    {"38.out", 0, reads(1, 1, seconds(10)), Outcome::kOk, ""},                   // steady state ended it early
    {"42.out", 0, reads(1, 2), Outcome::kOk, ""},                                // a banner before the document
    {"43.out", 128, reads(1, 1, seconds(10)), Outcome::kFailed, "interrupted"},  // SIGUSR1, then SIGINT
    {"46.out", 1, reads(), Outcome::kFailed, "error 84"},                        // verify failed
};

FioResult verdict_fixture(const std::string& name) {
  return read_result(host::read_file(kFixtures / name, kMaxOutputBytes).value());
}

host::ExitStatus ended(int code) {
  return {.exit_code = code};
}

class Fixture : public testing::TestWithParam<FixtureCase> {};

TEST_P(Fixture, HasTheRightVerdict) {
  const auto verdict = judge(ended(GetParam().exit_code), verdict_fixture(GetParam().file), GetParam().asked);
  EXPECT_EQ(verdict.outcome, GetParam().outcome) << verdict.reason;
  EXPECT_THAT(verdict.reason, HasSubstr(GetParam().reason));
  EXPECT_EQ(verdict.reason.empty(), verdict.outcome == Outcome::kOk);
}

INSTANTIATE_TEST_SUITE_P(Recorded, Fixture, testing::ValuesIn(kCases), [](const auto& each) {
  const std::string file = each.param.file;
  return "out" + file.substr(0, file.find('.'));
});

TEST(FixtureTable, NamesEveryFile) {
  std::set<std::string> named;
  for (const FixtureCase& each : kCases) named.insert(each.file);
  std::set<std::string> present;
  for (const auto& entry : std::filesystem::directory_iterator(kFixtures)) present.insert(entry.path().filename());
  EXPECT_EQ(named, present);
}

// A document with one job that read `ios` blocks and `bytes` bytes in `runtime_ms`.
std::string document(std::uint64_t ios, std::uint64_t bytes, std::uint64_t runtime_ms, const char* levels = "") {
  return fmt::format(
      R"({{"fio version":"fio-3.33","jobs":[{{"jobname":"a","error":0,"read":{{"io_bytes":{},"total_ios":{},"runtime":{}}},)"
      R"("iodepth_level":{{{}}}}}]}})",
      bytes, ios, runtime_ms, levels);
}

TEST(Judge, ADocumentAloneIsNotEnough) {
  const auto good = read_result(document(1000, 4096000, 1000));
  EXPECT_EQ(judge(ended(0), good, reads()).outcome, Outcome::kOk);
  EXPECT_EQ(judge(ended(1), good, reads()).reason, "fio ended with exit code 1");
  EXPECT_EQ(judge({.exit_code = 0, .signal = SIGKILL}, good, reads()).reason, "fio was killed by SIGKILL");
  EXPECT_EQ(judge({.exit_code = 0, .signal = 0, .ended_by_us = true}, good, reads()).outcome, Outcome::kFailed);
}

TEST(Judge, ZeroByteCompletionsAreAFailure) {
  // A disk that is detached under fio: error 0, a plausible rate, and too few bytes.
  const auto verdict = judge(ended(0), read_result(document(1'000'000, 4096, 1000)), reads());
  EXPECT_EQ(verdict.outcome, Outcome::kFailed);
  EXPECT_EQ(verdict.reason, "read: 1000000 I/Os of 4096 bytes moved 4096 bytes: some completed short");
  EXPECT_EQ(judge(ended(0), read_result(document(1, 0, 1000)), reads()).reason, "read completed without moving a byte");
}

TEST(Judge, IosInFlightAtTheEndOfTheRampAreAllowed) {
  const auto result = read_result(document(1000, 4096 * 1008, 1000, R"("8":100.0)"));
  EXPECT_EQ(judge(ended(0), result, reads(8)).outcome, Outcome::kOk);
  EXPECT_EQ(judge(ended(0), result, reads(7)).outcome, Outcome::kFailed);
}

TEST(Judge, EveryDirectionAskedForNeedsIo) {
  auto asked = reads();
  asked.ways.insert(Way::kWrite);
  EXPECT_EQ(judge(ended(0), read_result(document(1, 4096, 1)), asked).reason,
            "write was asked for and is not reported");
  EXPECT_EQ(judge(ended(0), read_result(document(0, 0, 1)), reads()).reason, "read was asked for and made no I/O");
}

TEST(Judge, RuntimeWithinTolerance) {
  const auto outcome = [](std::uint64_t ran_ms) {
    return judge(ended(0), read_result(document(10, 40960, ran_ms)), reads(1, 1, seconds(10))).outcome;
  };
  EXPECT_EQ(outcome(8'999), Outcome::kInconclusive);
  EXPECT_EQ(outcome(9'000), Outcome::kOk);
  EXPECT_EQ(outcome(12'000), Outcome::kOk);
  EXPECT_EQ(outcome(12'001), Outcome::kInconclusive);
}

TEST(Judge, DepthMustBeReachedAndHalfOfItCommon) {
  const auto outcome = [](const char* levels, unsigned depth) {
    return judge(ended(0), read_result(document(10, 40960, 1000, levels)), reads(depth)).outcome;
  };
  EXPECT_EQ(outcome(R"("1":1.6,"2":3.1,"4":6.2,"8":12.5,"16":25.0,"32":50.0,">=64":1.6)", 64), Outcome::kOk);
  EXPECT_EQ(outcome(R"("32":100.0,">=64":0.0)", 64), Outcome::kInconclusive) << "a full ring holds it at 32";
  EXPECT_EQ(outcome(R"("1":99.0,"32":0.5,">=64":0.5)", 64), Outcome::kInconclusive);
  EXPECT_EQ(outcome(R"("1":50.0,"2":50.0)", 2), Outcome::kOk);
  EXPECT_EQ(outcome(R"("1":100.0,"2":0.0)", 2), Outcome::kInconclusive);
  EXPECT_EQ(outcome(R"(">=64":100.0)", 256), Outcome::kOk) << "fio does not tell deeper levels apart";
  EXPECT_EQ(outcome("", 8), Outcome::kInconclusive);
}

TEST(Judge, NumberOfJobs) {
  EXPECT_EQ(judge(ended(0), verdict_fixture("42.out"), reads(1, 3)).outcome, Outcome::kInconclusive);
}

TEST(Judge, ReasonsAreOneLine) {
  const auto result =
      read_result(R"({"fio version":"fio-3.33","jobs":[{"jobname":"a\nb","error":5}]})", "", "fio: x\nfio: y\n");
  EXPECT_EQ(judge(ended(1), result, reads()).reason, "job 'a b' failed with error 5 (Input/output error): fio: x");
}

}  // namespace
}  // namespace xblk::fio
