// The state machine of a run, with a machine that does what each test says, in no time.
#include "agent/run/experiment.hpp"

#include <csignal>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "agent/run/fake/fake_rig.hpp"
#include "agent/toggle/test_directory.hpp"

namespace xblk::run {
namespace {

using report::Outcome;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr const char* kProfile = R"(
name: test
store: null:1GiB
fixed: {guests: 1, iodepth: 1}
matrix:
  persistent: [on, off]
fio: {runtime: 1s, time_based: on}
repeats: 1
order: sequential
)";

// Counters of a guest that maps and unmaps for each request.
FakeGuest mapping_guest() {
  return {.persistent_hits = 0, .maps = 1000};
}

class ExperimentTest : public testing::Test {
 protected:
  ExperimentTest() {
    std::filesystem::create_directories(run_directory());
    rig_.guest = [](int visit) { return visit == 0 ? FakeGuest{} : mapping_guest(); };
  }

  std::filesystem::path run_directory() { return directory_.path() / "run"; }
  std::filesystem::path state_directory() { return directory_.path() / "state"; }

  Result<Summary> run(const std::string& profile = kProfile) {
    auto parsed = plan::parse_profile(profile, "test.yaml");
    if (!parsed) return tl::unexpected(parsed.error());
    ExperimentConfig config{.run = {run_directory()}, .state_directory = state_directory()};
    Experiment experiment(host_, rig_, config, make_schedule(*std::move(parsed), {}, 0, 7), observer_);
    auto summary = experiment.run();
    results_ = experiment.results();
    return summary;
  }

  const report::Repeat& repeat(std::size_t point) { return results_.points.at(point).repeats.at(0); }
  std::size_t journals_left() {
    std::size_t count = 0;
    for ([[maybe_unused]] const auto& each : std::filesystem::directory_iterator(state_directory())) ++count;
    return count;
  }

  toggle::TestDirectory directory_;
  FakeRig rig_;
  host::FakeHost host_{[this](const host::ProcessSpec& spec) { return rig_.play_fio(spec); }};
  Observer observer_;
  report::Results results_;
};

TEST_F(ExperimentTest, ProvesEveryPointAndPutsEverythingBack) {
  const auto summary = run();
  ASSERT_TRUE(summary) << summary.error().message;
  EXPECT_EQ(summary->failed + summary->inconclusive, 0U) << repeat(0).reason << repeat(1).reason;
  EXPECT_EQ(repeat(0).iops, 1000.0);
  EXPECT_EQ(repeat(0).mechanism.at("persistent_hit_ratio"), 1.0);
  EXPECT_EQ(repeat(1).mechanism.at("unmaps_per_io"), 1.0);
  EXPECT_EQ(repeat(0).negotiated["back"]["data-path"], "persistent");
  EXPECT_EQ(repeat(1).negotiated["back"]["data-path"], "map");
  EXPECT_THAT(rig_.keys_.keys, testing::IsEmpty()) << "vbds detached, policies gone with them";
  EXPECT_EQ(journals_left(), 0U);
  const auto written = report::load_results((run_directory() / "results.json").string());
  ASSERT_TRUE(written) << written.error().message;
  EXPECT_EQ(written->points.size(), 2U);
  EXPECT_EQ(written->run.seed, 7U);
}

TEST_F(ExperimentTest, KilledFioFailsItsPointOnly) {
  rig_.guest = [](int visit) { return visit == 0 ? FakeGuest{.exit = {.signal = SIGKILL}} : mapping_guest(); };
  const auto summary = run();
  ASSERT_TRUE(summary);
  EXPECT_EQ(repeat(0).status, Outcome::failed);
  EXPECT_THAT(repeat(0).reason, HasSubstr("killed by SIGKILL"));
  EXPECT_FALSE(repeat(0).iops) << "a failed visit has no number";
  EXPECT_EQ(repeat(1).status, Outcome::ok) << repeat(1).reason;
}

TEST_F(ExperimentTest, AnotherNegotiatedResultIsInconclusive) {
  rig_.guest = [](int) { return FakeGuest{.published_instead = {{"persistent", "0"}}}; };
  ASSERT_TRUE(run());
  EXPECT_EQ(repeat(0).status, Outcome::inconclusive);
  EXPECT_THAT(repeat(0).reason, HasSubstr("front persistent: expected 1, seen 0"));
}

TEST_F(ExperimentTest, CountersThatContradictTheKeysAreInconclusive) {
  rig_.guest = [](int) { return mapping_guest(); };
  ASSERT_TRUE(run());
  EXPECT_EQ(repeat(0).status, Outcome::inconclusive);
  EXPECT_THAT(repeat(0).reason, HasSubstr("persistent hits: expected more than 0, seen 0"));
  EXPECT_EQ(repeat(1).status, Outcome::ok) << repeat(1).reason;
}

TEST_F(ExperimentTest, FioAndDriversMustCountTheSame) {
  rig_.guest = [](int) { return FakeGuest{.ios = 1000, .fio_ios = 1020, .persistent_hits = 1000}; };
  ASSERT_TRUE(run());
  EXPECT_EQ(repeat(0).status, Outcome::inconclusive);
  EXPECT_THAT(repeat(0).reason, HasSubstr("fio counted 1020 I/Os, the drivers 1000"));
}

TEST_F(ExperimentTest, GuestThatNeverConnectsIsStoppedAndNamed) {
  rig_.guest = [](int visit) {
    return visit == 0 ? FakeGuest{.connects = false, .ends_by_itself = false} : mapping_guest();
  };
  ASSERT_TRUE(run());
  EXPECT_EQ(repeat(0).status, Outcome::failed);
  EXPECT_THAT(repeat(0).reason, HasSubstr("not connected"));
  EXPECT_EQ(repeat(1).status, Outcome::ok) << repeat(1).reason;
}

TEST_F(ExperimentTest, DeadHostFailsTheVisitAndIsStartedAnew) {
  rig_.guest = [this](int visit) {
    FakeGuest guest = visit == 0 ? FakeGuest{} : mapping_guest();
    if (visit == 0) guest.at_start = [this] { rig_.died = "the emulated host ended (killed by SIGKILL)"; };
    return guest;
  };
  const auto summary = run();
  ASSERT_TRUE(summary);
  EXPECT_EQ(repeat(0).status, Outcome::failed);
  EXPECT_EQ(repeat(0).reason, "the emulated host ended (killed by SIGKILL)");
  EXPECT_EQ(repeat(1).status, Outcome::ok) << repeat(1).reason;
  EXPECT_EQ(rig_.starts.size(), 2U);
  EXPECT_EQ(journals_left(), 0U) << "its keys died with it";
}

TEST_F(ExperimentTest, UnrestorableIsReportedAndItsJournalKept) {
  rig_.guest = [this](int visit) {
    FakeGuest guest = visit == 0 ? FakeGuest{} : mapping_guest();
    guest.connects = visit == 0;
    if (visit == 1) guest.at_start = [this] { rig_.keys_.gone = true; };
    return guest;
  };
  const auto summary = run();
  ASSERT_TRUE(summary);
  EXPECT_THAT(summary->warnings, ElementsAre(HasSubstr("not restored")));
  EXPECT_EQ(journals_left(), 1U);
}

TEST_F(ExperimentTest, FirstSignalFinishesTheVisit) {
  host_.raise_at(host_.now() + millis(1500), SIGINT);  // after 1 s of idle rate: in the first visit
  const auto summary = run();
  ASSERT_TRUE(summary);
  EXPECT_EQ(summary->signal, SIGINT);
  EXPECT_EQ(repeat(0).status, Outcome::ok) << repeat(0).reason;
  EXPECT_TRUE(results_.points.at(1).repeats.empty());
  EXPECT_THAT(rig_.keys_.keys, testing::IsEmpty());
  EXPECT_EQ(journals_left(), 0U);
}

TEST_F(ExperimentTest, SecondSignalStopsAtOnceAndStillRestores) {
  host_.raise_at(host_.now() + millis(1500), SIGINT);
  host_.raise_at(host_.now() + millis(1600), SIGTERM);
  const auto summary = run();
  ASSERT_TRUE(summary);
  EXPECT_EQ(summary->signal, SIGTERM);
  EXPECT_EQ(repeat(0).status, Outcome::inconclusive);
  EXPECT_EQ(repeat(0).reason, "interrupted");
  EXPECT_THAT(rig_.keys_.keys, testing::IsEmpty());
}

TEST_F(ExperimentTest, HostThatCannotStartEndsTheRunWithResultsWritten) {
  rig_.start_result = fail(EADDRINUSE, "socket in use");
  const auto summary = run();
  ASSERT_FALSE(summary);
  EXPECT_EQ(summary.error().message, "socket in use");
  EXPECT_TRUE(report::load_results((run_directory() / "results.json").string()));
}

TEST_F(ExperimentTest, UnwritableResultsEndTheRun) {
  std::filesystem::remove_all(run_directory());
  const auto summary = run();
  ASSERT_FALSE(summary);
  EXPECT_THAT(summary.error().message, HasSubstr("results.json"));
  EXPECT_TRUE(rig_.starts.empty()) << "found out before anything was started";
}

TEST_F(ExperimentTest, HostIsRestartedOnlyForWhatCannotBeToggled) {
  rig_.guest = [](int) { return FakeGuest{}; };
  const auto summary = run(R"(
name: locks
store: null:1GiB
fixed: {iodepth: 1, persistent: on}
matrix:
  grant-locks: [coarse, split]
  indirect-segments: [16, 256]   # the second needs more memory than a guest has by default
  ring-page-order: [4]
  queues: [4]
fio: {runtime: 1s, time_based: on}
repeats: 1
order: sequential
)");
  ASSERT_TRUE(summary) << summary.error().message;
  std::vector<std::string> locks;
  for (const RigSpec& spec : rig_.starts) locks.push_back(spec.host.at("grant-locks"));
  EXPECT_THAT(locks, ElementsAre("coarse", "split"));
  EXPECT_GT(rig_.starts.at(0).guest_memory_mib, RigSpec{}.guest_memory_mib);
  EXPECT_EQ(rig_.starts.at(0).guest_memory_mib, rig_.starts.at(1).guest_memory_mib);
}

}  // namespace
}  // namespace xblk::run
