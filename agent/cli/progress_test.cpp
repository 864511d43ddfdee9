#include "agent/cli/progress.hpp"

#include <gtest/gtest.h>

namespace xblk::cli {
namespace {

// Two points of 4 s, visited twice.
run::Schedule four_visits() {
  const auto profile = plan::parse_profile(
      "name: t\nstore: null:1GiB\nmatrix: {persistent: [on, off]}\n"
      "fio: {runtime: 3s, ramp_time: 1s, time_based: on}\nrepeats: 2\norder: sequential\n",
      "t.yaml");
  return run::make_schedule(*profile, {}, 0, 1);
}

const std::vector<bool> kNoneMeasured(4, false);

Instant at(std::int64_t s) {
  return Instant{} + seconds(s);
}

TEST(TimeLeft, StartsWithTheLoadAndAnEstimateOfTheRest) {
  TimeLeft left(four_visits(), kNoneMeasured);
  left.visit_begins(0, at(100));
  EXPECT_EQ(left.at(at(100)), seconds(16) + run::kVisitOverhead * 4);
  EXPECT_EQ(left.at(at(102)), seconds(14) + run::kVisitOverhead * 4);
  EXPECT_DOUBLE_EQ(left.share(at(100)), 0.0);
}

TEST(TimeLeft, LearnsWhatAVisitReallyTakes) {
  TimeLeft left(four_visits(), kNoneMeasured);
  left.visit_begins(0, at(100));
  left.visit_begins(1, at(106));  // 4 s of load took 6 s
  EXPECT_EQ(left.at(at(106)), seconds(12) + seconds(2) * 3);
  EXPECT_DOUBLE_EQ(left.share(at(106)), 6.0 / 24.0);
}

TEST(TimeLeft, VisitsOfASittingBeforeTakeNone) {
  TimeLeft left(four_visits(), {true, false, true, false});
  left.visit_begins(1, at(100));
  EXPECT_EQ(left.at(at(100)), seconds(8) + run::kVisitOverhead * 2);
  left.visit_begins(3, at(105));
  EXPECT_EQ(left.at(at(105)), seconds(4) + seconds(1));
  EXPECT_DOUBLE_EQ(left.share(at(105)), 0.5);
}

TEST(TimeLeft, IsNeverNegative) {
  TimeLeft left(four_visits(), kNoneMeasured);
  left.visit_begins(3, at(100));
  EXPECT_EQ(left.at(at(1000)), Nanos(0));
}

TEST(TimeLeft, TextIsAClock) {
  EXPECT_EQ(clock_text(millis(4600)), "0:05");
  EXPECT_EQ(clock_text(seconds(65)), "1:05");
  EXPECT_EQ(clock_text(seconds(7800)), "2:10:00");
}

}  // namespace
}  // namespace xblk::cli
