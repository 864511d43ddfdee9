// The installed fio, started as a run starts it, with its null engine in place of ours.
#include <csignal>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "agent/fio/discovery.hpp"
#include "agent/fio/job.hpp"
#include "agent/fio/verdict.hpp"
#include "agent/host/files.hpp"
#include "agent/host/linux/linux_host.hpp"

namespace xblk::fio {
namespace {

using testing::HasSubstr;

class FioSystemTest : public testing::Test {
 protected:
  FioSystemTest() : host_(host::create_linux_host().value()) {
    std::string name = (std::filesystem::temp_directory_path() / "xblk-fio-XXXXXX").string();
    directory_ = ::mkdtemp(name.data());
  }
  ~FioSystemTest() override { std::filesystem::remove_all(directory_); }

  std::unique_ptr<host::Process> start(const GuestJob& job) {
    auto words = argv(job).value();
    std::erase_if(words, [](const std::string& word) { return word.starts_with("--xblk_"); });
    for (std::string& word : words) {
      if (word.starts_with("--ioengine=")) word = "--ioengine=null";
    }
    return host_->spawn({.argv = words, .standard_output = host::Capture{}, .standard_error = host::Capture{}}).value();
  }
  host::ExitStatus finish(host::Process& process) {
    host::Process* list[] = {&process};
    EXPECT_EQ(host_->wait(list, host_->now() + seconds(60)), host::Wake::kExited);
    return process.status().value();
  }
  GuestJob job(Nanos runtime) {
    return {.output = directory_ / "out.json", .pattern = "randrw", .runtime = runtime, .size = Bytes(1 << 30)};
  }
  FioResult result(host::Process& process) {
    return read_result(host::read_file(directory_ / "out.json", kMaxOutputBytes).value_or(""),
                       process.captured_output(), process.captured_error());
  }
  static Expectation both(Nanos runtime) {
    return {.ways = {Way::kRead, Way::kWrite}, .runtime = runtime, .block_size = Bytes(4096)};
  }

  std::unique_ptr<host::Host> host_;
  std::filesystem::path directory_;
};

TEST_F(FioSystemTest, IsFoundAndNewEnough) {
  EXPECT_TRUE(find(*host_));
}

TEST_F(FioSystemTest, OurCommandGivesAMeasurementWithHistogram) {
  auto asked = job(millis(500));
  asked.ramp = millis(200);
  const auto process = start(asked);
  const auto status = finish(*process);
  const auto output = result(*process);
  const auto verdict = judge(status, output, both(millis(500)));
  EXPECT_EQ(verdict.outcome, Outcome::kOk) << verdict.reason;
  const Direction read = *output.sum(Way::kRead);
  EXPECT_TRUE(read.latency.percentiles_ns.contains(99.9));
  EXPECT_FALSE(read.latency.histogram.empty());
}

TEST_F(FioSystemTest, TerminatedIsNotAMeasurement) {
  const auto process = start(job(seconds(100)));
  ASSERT_EQ(host_->wait({}, host_->now() + millis(700)), host::Wake::kDeadline);
  const auto status = process->terminate(seconds(20));
  EXPECT_EQ(status.signal, 0) << "SIGINT is enough for fio";
  const auto verdict = judge(status, result(*process), both(seconds(100)));
  EXPECT_EQ(verdict.outcome, Outcome::kFailed);
  EXPECT_THAT(verdict.reason, HasSubstr("interrupted"));
}

TEST_F(FioSystemTest, KilledIsNotAMeasurement) {
  const auto process = start(job(seconds(100)));
  ::kill(process->pid(), SIGKILL);
  const auto status = finish(*process);
  EXPECT_EQ(judge(status, result(*process), both(seconds(100))).reason, "fio was killed by SIGKILL");
}

TEST_F(FioSystemTest, AnOptionThatFioRefusesIsNamed) {
  auto bad = job(millis(100));
  bad.options = {{"no_such_option", "1"}};
  const auto process = start(bad);
  const auto status = finish(*process);
  const auto verdict = judge(status, result(*process), both(millis(100)));
  EXPECT_EQ(verdict.outcome, Outcome::kFailed);
  EXPECT_THAT(verdict.reason, HasSubstr("no_such_option"));
}

}  // namespace
}  // namespace xblk::fio
