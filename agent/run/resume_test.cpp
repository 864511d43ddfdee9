// A run that is cut off at any place and goes on ends as one that was not.
#include "agent/run/resume.hpp"

#include <csignal>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "agent/run/experiment.hpp"
#include "agent/run/fake/fake_rig.hpp"
#include "agent/toggle/test_directory.hpp"

namespace xblk::run {
namespace {

namespace fs = std::filesystem;
using report::Outcome;
using testing::HasSubstr;

constexpr const char* kResumeProfile = R"(
name: test
store: null:1GiB
fixed: {guests: 1, iodepth: 1}
matrix:
  max-persistent-grants: [100, 200, 300]
fio: {runtime: 1s, time_based: on}
repeats: 2
seed: 11
)";
constexpr std::size_t kVisits = 6;

// The directories as they are on disk at one moment: what a power cut leaves.
class PowerCut final : public Observer {
 public:
  PowerCut(fs::path live, fs::path left, std::size_t position, VisitState state)
      : live_(std::move(live)), left_(std::move(left)), position_(position), state_(state) {}
  void visit_begins(std::size_t position, const plan::Point&, std::size_t) override { now_ = position; }
  void visit_state(VisitState state) override {
    if (now_ == position_ && state == state_) fs::copy(live_, left_, fs::copy_options::recursive);
  }

 private:
  fs::path live_;
  fs::path left_;
  std::size_t position_;
  VisitState state_;
  std::size_t now_ = 0;
};

class Visits final : public Observer {
 public:
  void visit_begins(std::size_t position, const plan::Point&, std::size_t) override { positions.push_back(position); }
  std::vector<std::size_t> positions;
};

class ResumeTest : public testing::Test {
 protected:
  ResumeTest() {
    fs::create_directories(run_directory());
    rig_.guest = [](int) { return FakeGuest{}; };
  }
  fs::path live() { return directory_.path() / "live"; }
  fs::path run_directory() { return live() / "run"; }

  // One sitting of the run below `root`; its results are in results_.
  Result<Summary> sit(const fs::path& root, std::optional<report::Results> former, Observer& observer) {
    auto schedule = former ? schedule_of(*former, "results.json").value()
                           : make_schedule(plan::parse_profile(kResumeProfile, "test.yaml").value(), {}, 0, 7);
    ExperimentConfig config{.run = {root / "run"},
                            .state_directory = root / "state",
                            .fio_version = "fio-3.33",
                            .former = std::move(former)};
    Experiment experiment(host_, rig_, config, std::move(schedule), observer);
    auto summary = experiment.run();
    results_ = experiment.results();
    return summary;
  }
  Result<Summary> sit(Observer& observer) { return sit(live(), std::nullopt, observer); }

  Result<report::Results> kept_in(const fs::path& root) {
    auto former = report::load_results((root / "run" / "results.json").string());
    if (!former) return former;
    const auto schedule = schedule_of(*former, "results.json");
    if (!schedule) return tl::unexpected(schedule.error());
    return kept_of(*std::move(former), *schedule, now_);
  }

  toggle::TestDirectory directory_;
  FakeRig rig_;
  host::FakeHost host_{[this](const host::ProcessSpec& spec) { return rig_.play_fio(spec); }};
  Circumstances now_{"fio-3.33", report::Json::parse(host_.fingerprint().dump())};
  Observer nobody_;
  report::Results results_;
};

using Positions = std::vector<std::pair<std::string, std::size_t>>;

Positions positions_of(const report::Results& results) {
  Positions out;
  for (const auto& point : results.points) {
    for (const auto& repeat : point.repeats) out.emplace_back(point.id, repeat.order_position);
  }
  return out;
}

TEST_F(ResumeTest, APowerCutAtAnyMomentLosesOneVisitAtMost) {
  ASSERT_TRUE(sit(nobody_));
  const Positions whole = positions_of(results_);
  ASSERT_EQ(whole.size(), kVisits);
  for (std::size_t position = 0; position < kVisits; ++position) {
    for (const VisitState state : {VisitState::toggling, VisitState::measuring, VisitState::recorded}) {
      SCOPED_TRACE(testing::Message() << "cut off while visit " << position << " was " << to_string(state));
      const fs::path left = directory_.path() / "left";
      fs::remove_all(left);
      fs::remove_all(live());
      fs::create_directories(run_directory());
      PowerCut cut(live(), left, position, state);
      ASSERT_TRUE(sit(cut));
      auto kept = kept_in(left);
      ASSERT_TRUE(kept) << kept.error().message;
      Visits again;
      ASSERT_TRUE(sit(left, *std::move(kept), again));
      EXPECT_EQ(again.positions.size(), kVisits - position);
      EXPECT_EQ(again.positions.front(), position) << "the order goes on where it stopped";
      EXPECT_EQ(positions_of(results_), whole) << "every visit is there once, in its place";
      EXPECT_EQ(results_.run.sittings.size(), 2U);
      EXPECT_TRUE(results_.run.sittings[0].ended.empty()) << "it was killed";
      EXPECT_FALSE(results_.run.sittings[1].ended.empty());
      EXPECT_EQ(results_.run.started, results_.run.sittings[0].started);
      for (const auto& point : results_.points) EXPECT_EQ(point.status, Outcome::ok) << point.reason;
    }
  }
}

TEST_F(ResumeTest, AVisitThatWasStoppedIsDoneAgain) {
  host_.raise_at(host_.now() + millis(2500), SIGHUP);  // 1 s of idle rate, then visits of 1 s: in the second
  host_.raise_at(host_.now() + millis(2600), SIGHUP);
  ASSERT_EQ(sit(nobody_)->signal, SIGHUP);
  auto stored = report::load_results((run_directory() / "results.json").string()).value();
  std::size_t interrupted = 0;
  for (const auto& point : stored.points) {
    for (const auto& repeat : point.repeats) interrupted += repeat.interrupted ? 1 : 0;
  }
  EXPECT_EQ(interrupted, 1U);
  const auto kept = kept_in(live());
  ASSERT_TRUE(kept) << kept.error().message;
  EXPECT_EQ(positions_of(*kept).size(), 1U);
  for (const auto& point : kept->points) EXPECT_NE(point.status, Outcome::failed);
}

// A machine that shuts down asks every process to end, our children too.
TEST_F(ResumeTest, AVisitThatFailsWhileWeAreAskedToEndSaysNothing) {
  rig_.guest = [this](int visit) {
    FakeGuest guest;
    if (visit != 1) return guest;
    host_.raise_at(host_.now() + millis(1), SIGTERM);
    guest.exit = {.signal = SIGTERM};
    return guest;
  };
  ASSERT_EQ(sit(nobody_)->signal, SIGTERM);
  EXPECT_EQ(positions_of(results_).size(), 2U);
  EXPECT_EQ(positions_of(*kept_in(live())).size(), 1U);
}

TEST_F(ResumeTest, AFailureOfItsOwnIsKept) {
  rig_.guest = [](int visit) { return visit == 0 ? FakeGuest{.exit = {.signal = SIGKILL}} : FakeGuest{}; };
  ASSERT_TRUE(sit(nobody_));
  EXPECT_EQ(positions_of(*kept_in(live())).size(), kVisits) << "doing it again would hide it";
}

TEST_F(ResumeTest, FilesOfTheVisitThatWasCutOffAreNotTakenForThoseOfTheNext) {
  ASSERT_TRUE(sit(nobody_));
  const fs::path raw = run_directory() / RunLayout::visit(results_.points[0].id, 0);
  std::ofstream(raw / "old") << "x";
  auto former = results_;
  former.points[0].repeats.erase(former.points[0].repeats.begin());
  ASSERT_TRUE(sit(live(), std::move(former), nobody_));
  EXPECT_FALSE(fs::exists(raw / "old"));
  EXPECT_TRUE(fs::exists(raw / "guest-1.fio.json"));
}

// ---- what is refused ----

class RefusalTest : public ResumeTest {
 protected:
  RefusalTest() { EXPECT_TRUE(sit(nobody_)); }
  std::string refusal(const report::Results& former) {
    const auto schedule = schedule_of(former, "results.json");
    if (!schedule) return schedule.error().message;
    const auto kept = kept_of(former, *schedule, now_);
    return kept ? "resumed" : kept.error().message;
  }
};

TEST_F(RefusalTest, NothingIsWrongWithTheRunItself) {
  EXPECT_EQ(refusal(results_), "resumed");
}

TEST_F(RefusalTest, AnotherMachine) {
  now_.fingerprint = {{"kernel", {{"release", "6.2"}}}, {"memory_total_kib", 1000}, {"load_average", {1, 2, 3}}};
  results_.run.fingerprint = {
      {"kernel", {{"release", "6.1"}}}, {"memory_total_kib", 1004}, {"load_average", {9, 9, 9}}};
  EXPECT_THAT(refusal(results_), HasSubstr("must not be mixed: kernel.release: 6.1 and 6.2; start a new run"));
  now_.fingerprint["kernel"]["release"] = "6.1";
  EXPECT_EQ(refusal(results_), "resumed") << "a boot finds a little more or less memory";
  now_.fingerprint["memory_total_kib"] = 2000;
  EXPECT_THAT(refusal(results_), HasSubstr("memory_total_kib: 1004 and 2000"));
}

TEST_F(RefusalTest, AnotherFio) {
  now_.fio_version = "fio-3.35";
  EXPECT_THAT(refusal(results_), HasSubstr("measured with fio-3.33, this is fio-3.35"));
}

TEST_F(RefusalTest, AnotherPlan) {
  auto other = results_;
  for (auto& [name, value] : other.points[1].params) {
    if (name == "polling") value = "psychic";
  }
  EXPECT_THAT(
      refusal(other),
      HasSubstr(
          "of point g1-q1-persistent-max-persistent-grants-200-randread-bs4k-qd1 'polling' was 'psychic' and is "));
  other = results_;
  std::erase_if(other.points[0].params, [](const auto& param) { return param.first == "polling"; });
  EXPECT_THAT(refusal(other), HasSubstr("'polling' was absent and is 'adaptive'")) << "a newer xblk has more policies";
  other = results_;
  other.points.pop_back();
  EXPECT_THAT(refusal(other), HasSubstr("3 points, not 2"));
}

TEST_F(RefusalTest, RepeatsThatWereNotPlanned) {
  auto other = results_;
  other.points[0].repeats.push_back(other.points[0].repeats[0]);
  EXPECT_THAT(refusal(other), HasSubstr("the file was changed")) << "twice";
  other = results_;
  other.points[0].repeats[0].order_position = 999;
  EXPECT_THAT(refusal(other), HasSubstr("the file was changed"));
  other = results_;
  other.points[0].repeats[0].sitting = 1;
  EXPECT_THAT(refusal(other), HasSubstr("the file was changed"));
  other = results_;
  other.run.seed += 1;
  EXPECT_THAT(refusal(other), HasSubstr("the file was changed")) << "another order";
}

TEST_F(RefusalTest, ResultsThatDoNotSayEnough) {
  auto other = results_;
  other.run.repeats = 0;
  EXPECT_THAT(refusal(other), HasSubstr("did not record what resuming needs"));
  other = results_;
  other.run.repeats = 1'000'000'000;
  EXPECT_THAT(refusal(other), HasSubstr("never planned"));
  other = results_;
  other.run.profile_text = "name: [";
  EXPECT_THAT(refusal(other), HasSubstr("results.json (its profile):1:"));
}

TEST(ProfileDifference, NamesTheFirstLineThatDiffers) {
  EXPECT_EQ(profile_difference("a\nb\n", "a\nb\n", "p.yaml"), std::nullopt);
  EXPECT_EQ(profile_difference("a\nb\n", "a\nb", "p.yaml"), std::nullopt);
  EXPECT_THAT(*profile_difference("a\nb\n", "a\nc\n", "p.yaml"), HasSubstr("p.yaml:2: is 'c', and 'b' in the profile"));
  EXPECT_THAT(*profile_difference("a\n", "a\nc\n", "p.yaml"), HasSubstr("p.yaml:2: is 'c', and nothing in"));
}

}  // namespace
}  // namespace xblk::run
