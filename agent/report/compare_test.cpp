#include "agent/report/compare.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "agent/report/figures.hpp"
#include "agent/report/test_results.hpp"

namespace xblk::report {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using Values = std::vector<double>;

constexpr double kFivePercent = 0.05;

Verdict verdict_of(Values base, Values candidate, bool higher_is_better = true) {
  return compare_metric("iops", higher_is_better, std::move(base), std::move(candidate), kFivePercent).verdict;
}

TEST(CompareMetric, ThreeRepeatsJudgeBySeparation) {
  EXPECT_EQ(verdict_of({200, 210, 205}, {100, 101, 102}), Verdict::regression);
  EXPECT_EQ(verdict_of({100, 101, 102}, {200, 210, 205}), Verdict::improvement);
  EXPECT_EQ(verdict_of({100, 101, 102}, {99, 100, 101}), Verdict::unchanged);
  EXPECT_EQ(verdict_of({100, 101, 102}, {96, 97, 98}), Verdict::unchanged) << "separated, but within the threshold";
  EXPECT_EQ(verdict_of({100, 120, 140}, {90, 105, 130}), Verdict::inconclusive) << "large, but the ranges overlap";
}

TEST(CompareMetric, LowerIsBetterTurnsTheVerdictRound) {
  EXPECT_EQ(verdict_of({100, 101, 102}, {200, 210, 205}, false), Verdict::regression);
  EXPECT_EQ(verdict_of({200, 210, 205}, {100, 101, 102}, false), Verdict::improvement);
}

TEST(CompareMetric, TwoRepeatsAreNeverAVerdict) {
  EXPECT_EQ(verdict_of({200, 210}, {100, 101, 102}), Verdict::inconclusive);
  EXPECT_EQ(verdict_of({100, 100}, {100, 100}), Verdict::inconclusive);
}

TEST(CompareMetric, FiveRepeatsJudgeByInterval) {
  const auto metric = compare_metric("iops", true, {200, 202, 198, 201, 199}, {100, 101, 99, 100, 102}, kFivePercent);
  EXPECT_EQ(metric.verdict, Verdict::regression);
  ASSERT_TRUE(metric.interval.has_value());
  EXPECT_LT(metric.interval->high, 0.6);
  EXPECT_EQ(verdict_of({100, 140, 90, 130, 110}, {80, 135, 95, 90, 125}), Verdict::inconclusive);
  EXPECT_EQ(verdict_of({100, 101, 99, 100, 102}, {101, 100, 99, 103, 100}), Verdict::unchanged);
}

TEST(CompareMetric, ThresholdIsTheCallersChoice) {
  const Values base{100, 101, 102};
  const Values slower{92, 93, 94};
  EXPECT_EQ(compare_metric("iops", true, base, slower, 0.05).verdict, Verdict::regression);
  EXPECT_EQ(compare_metric("iops", true, base, slower, 0.10).verdict, Verdict::unchanged);
}

TEST(CompareMetric, WithoutValuesNothingIsCompared) {
  EXPECT_EQ(verdict_of({}, {1, 2, 3}), Verdict::not_comparable);
  EXPECT_EQ(verdict_of({1, 2, 3}, {}), Verdict::not_comparable);
}

TEST(Compare, PersistentOnAgainstOffInOneRunIsARegression) {
  const Results results = example_results();
  CompareOptions options;
  options.by = *parse_by_parameter("persistent=on:off");
  const auto comparison = compare(results, results, options);
  ASSERT_TRUE(comparison.has_value()) << comparison.error().message;
  EXPECT_EQ(comparison->verdict, Verdict::regression);
  EXPECT_EQ(exit_code(comparison->verdict), 1);
  EXPECT_EQ(comparison->reason, "2 of 2 points");
  ASSERT_EQ(comparison->points.size(), 2u);
  EXPECT_EQ(comparison->points[0].id, "g2-q1-persistent-randread-bs4k-qd32");
  EXPECT_NEAR(comparison->points[0].metrics[0].ratio, 151'200.0 / 402'000.0, 1e-9);
  EXPECT_FALSE(comparison->points[0].metrics[1].gates) << "latency informs unless asked to gate";

  options.by = *parse_by_parameter("persistent=off:on");
  EXPECT_EQ(exit_code(compare(results, results, options)->verdict), 0) << "the other way round it is an improvement";
}

TEST(Compare, ARunWithItselfIsUnchanged) {
  const Results results = example_results();
  const auto comparison = compare(results, results, {});
  ASSERT_TRUE(comparison.has_value());
  EXPECT_EQ(comparison->verdict, Verdict::unchanged);
  EXPECT_EQ(exit_code(comparison->verdict), 0);
  EXPECT_EQ(comparison->points.size(), 4u);
}

TEST(Compare, OrderOfParametersDoesNotMatter) {
  const Results results = example_results();
  Results shuffled = results;
  for (PointResult& point : shuffled.points) std::reverse(point.params.begin(), point.params.end());
  EXPECT_EQ(compare(results, shuffled, {})->verdict, Verdict::unchanged);
}

TEST(Compare, OtherPlatformOrFioIsNotComparable) {
  const Results base = example_results();
  Results other = base;
  other.run.platform = "xen";
  auto comparison = compare(base, other, {});
  EXPECT_EQ(exit_code(comparison->verdict), 3);
  EXPECT_EQ(comparison->reason, "the platform differs: emu and xen");
  other = base;
  other.run.fio_version = "fio-3.42";
  comparison = compare(base, other, {});
  EXPECT_EQ(comparison->verdict, Verdict::not_comparable);
  EXPECT_EQ(comparison->reason, "the version of fio differs: fio-3.33 and fio-3.42");
}

TEST(Compare, FailedAndMissingPointsAreNotComparable) {
  const Results base = example_results();
  Results candidate = base;
  candidate.points[0].status = Outcome::failed;
  candidate.points[0].reason = "fio: exit 1";
  candidate.points[3].params[1].second = "8";
  const auto comparison = compare(base, candidate, {});
  EXPECT_EQ(comparison->verdict, Verdict::not_comparable);
  EXPECT_EQ(exit_code(comparison->verdict), 3);
  ASSERT_EQ(comparison->points.size(), 5u);
  EXPECT_EQ(comparison->points[0].reason, "new is failed: fio: exit 1");
  EXPECT_EQ(comparison->points[3].reason, "only in base");
  EXPECT_EQ(comparison->points[4].reason, "only in new");
}

TEST(Compare, ARegressionOutweighsEverythingElse) {
  const Results base = example_results();
  Results candidate = base;
  candidate.points[0].status = Outcome::failed;
  for (Repeat& repeat : candidate.points[1].repeats) repeat.iops = *repeat.iops / 2;
  EXPECT_EQ(compare(base, candidate, {})->verdict, Verdict::regression);
}

TEST(Compare, NothingInCommon) {
  Results empty = example_results();
  empty.points.clear();
  const auto comparison = compare(empty, empty, {});
  EXPECT_EQ(exit_code(comparison->verdict), 3);
  EXPECT_EQ(comparison->reason, "there is nothing to compare");
}

TEST(Compare, LatencyGatesOnRequest) {
  const Results base = example_results();
  Results candidate = base;
  for (PointResult& point : candidate.points) {
    for (Repeat& repeat : point.repeats) repeat.latency_ns["read"]["p99"] *= 3;
  }
  EXPECT_EQ(compare(base, candidate, {})->verdict, Verdict::unchanged);
  CompareOptions options;
  options.gate_latency = true;
  EXPECT_EQ(compare(base, candidate, options)->verdict, Verdict::regression);
}

TEST(Compare, HostsThatDifferAreNoted) {
  const Results base = example_results();
  Results candidate = base;
  candidate.run.fingerprint["cpus"] = 4;
  candidate.run.fingerprint["load_average_1m"] = 0.7;
  const auto comparison = compare(base, candidate, {});
  EXPECT_THAT(comparison->notes, ElementsAre("hosts differ in cpus: 2 and 4"));
}

Results resumed(double second_sitting) {
  Results results = example_results();
  results.run.repeats = 3;
  results.run.sittings = {{"2026-11-30T12:00:00Z", "", "", ""},
                          {"2026-11-30T13:00:00Z", "2026-11-30T13:01:00Z", "", ""}};
  for (PointResult& point : results.points) {
    Repeat& last = point.repeats.back();
    last.sitting = 1;
    last.iops = *point.repeats[0].iops * second_sitting;
    summarise(point);
  }
  return results;
}

TEST(Compare, SittingsOfARunAreNoted) {
  const auto comparison = compare(example_results(), resumed(0.5), {});
  ASSERT_EQ(comparison->notes.size(), 2u);
  EXPECT_EQ(comparison->notes[0], "new: sitting 1 of 2, 2026-11-30T12:00:00Z killed: 8 visits");
  EXPECT_THAT(comparison->notes[1], testing::StartsWith("new: sitting 2 of 2, 2026-11-30T13:00:00Z to "
                                                        "2026-11-30T13:01:00Z: 4 visits; IOPS 0.50"));
  EXPECT_THAT(comparison->notes[1], HasSubstr("(median over the 4 points that both have)"));
}

TEST(Compare, PairsOfDifferentSittingsAreCounted) {
  Results results = resumed(1);
  CompareOptions options;
  options.by = *parse_by_parameter("persistent=on:off");
  EXPECT_THAT(compare(results, results, options)->notes, testing::SizeIs(2)) << "both have repeats of both sittings";
  for (PointResult& point : results.points) {
    for (Repeat& repeat : point.repeats) repeat.sitting = value_of(point.params, "persistent") == "on" ? 0 : 1;
  }
  EXPECT_THAT(compare(results, results, options)->notes.back(),
              HasSubstr("2 pairs were measured in different sittings"));
}

TEST(Compare, ARunThatIsNotWholeIsNoted) {
  Results results = example_results();
  results.run.repeats = 5;
  results.points[0].repeats[0].interrupted = true;
  EXPECT_THAT(compare(results, example_results(), {})->notes,
              ElementsAre("base: not whole: 11 of 20 visits are measured; 'xblk run --resume' goes on"));
}

TEST(Compare, AdjustedPValueFromFiveRepeatsOn) {
  Results results;
  results.points = {example_point("a", {{"p", "on"}, {"q", "1"}}, {200, 201, 202, 203, 204}),
                    example_point("b", {{"p", "off"}, {"q", "1"}}, {100, 101, 102, 103, 104}),
                    example_point("c", {{"p", "on"}, {"q", "2"}}, {200, 201, 202, 203, 204}),
                    example_point("d", {{"p", "off"}, {"q", "2"}}, {200.5, 201.5, 202.5, 203.5, 199.5})};
  CompareOptions options;
  options.by = *parse_by_parameter("p=on:off");
  const auto comparison = compare(results, results, options);
  EXPECT_NEAR(*comparison->points[0].metrics[0].p_adjusted, 2 * 2.0 / 252.0, 1e-9)
      << "Holm: the smallest of two, doubled";
  EXPECT_EQ(comparison->points[1].verdict, Verdict::unchanged);
}

TEST(Compare, MistakesOfTheCallerAreErrors) {
  const Results results = example_results();
  CompareOptions options;
  options.by = ByParameter{"persistant", "on", "off"};
  EXPECT_EQ(compare(results, results, options).error().message,
            "no point of 20261130T120000Z-quick has a parameter 'persistant'");
  options.by = ByParameter{"queues", "1", "9"};
  EXPECT_EQ(compare(results, results, options).error().message,
            "no point of 20261130T120000Z-quick has queues=9; there are 1, 2");
}

TEST(ByParameterTest, Parse) {
  const auto by = parse_by_parameter("persistent=on:off");
  ASSERT_TRUE(by.has_value());
  EXPECT_EQ(by->name, "persistent");
  EXPECT_EQ(by->base, "on");
  EXPECT_EQ(by->candidate, "off");
  for (const char* bad : {"", "persistent", "persistent=on", "=on:off", "p=:off", "p=on:", "p:on=off"}) {
    EXPECT_FALSE(parse_by_parameter(bad).has_value()) << bad;
  }
  EXPECT_EQ(parse_by_parameter("p=1:1").error().message, "'p=1:1' compares a value with itself");
}

TEST(CompareRender, Text) {
  const Results results = example_results();
  CompareOptions options;
  options.by = *parse_by_parameter("persistent=on:off");
  const std::string text = render_text(*compare(results, results, options), false);
  EXPECT_EQ(text,
            R"(base  20261130T120000Z-quick persistent=on
new   20261130T120000Z-quick persistent=off
all points: guests=2 rw=randread bs=4k iodepth=32 store=null:1g

verdict       queues  metric        base       new  new/base  95 % interval  why
------------  ------  --------  --------  --------  --------  -------------  -----------------------------------------
regression         1  IOPS       402.0 k   151.2 k     0.376              -  every new value is below every base value
(regression)       1  read p99  175.1 µs  465.6 µs     2.659              -  every new value is above every base value
regression         2  IOPS       431.0 k   160.4 k     0.372              -  every new value is below every base value
(regression)       2  read p99  163.3 µs  438.9 µs     2.687              -  every new value is above every base value

values where there are too few repeats for an interval:
  g2-q1-persistent-randread-bs4k-qd32 IOPS: base 402.0 k, 397.5 k, 405.1 k; new 151.2 k, 149.9 k, 155.0 k
  g2-q1-persistent-randread-bs4k-qd32 read p99: base 175.1 µs, 177.1 µs, 173.8 µs; new 465.6 µs, 469.6 µs, 454.2 µs
  g2-q2-persistent-randread-bs4k-qd32 IOPS: base 431.0 k, 420.3 k, 440.9 k; new 162.0 k, 158.7 k, 160.4 k
  g2-q2-persistent-randread-bs4k-qd32 read p99: base 163.3 µs, 167.5 µs, 159.7 µs; new 434.6 µs, 443.6 µs, 438.9 µs

regression: 2 of 2 points (threshold 5 %)
)");
  EXPECT_THAT(render_text(*compare(results, results, options), true), HasSubstr("\x1b[31mregression"));
}

TEST(CompareRender, JsonCarriesValuesAndExitCode) {
  const Results results = example_results();
  const Json json = to_json(*compare(results, results, {}));
  EXPECT_EQ(json["verdict"], "unchanged");
  EXPECT_EQ(json["exit_code"], 0);
  EXPECT_EQ(json["points"][0]["metrics"][0]["base"]["values"].size(), 3u);
  EXPECT_TRUE(json["points"][0]["metrics"][0]["interval"].is_null());
}

TEST(CompareRender, JunitOfAnIncomparablePairIsSkippedNotEmpty) {
  const Results base = example_results();
  Results other = base;
  other.run.platform = "model";
  const std::string xml = render_junit(*compare(base, other, {}));
  EXPECT_THAT(xml, AllOf(HasSubstr("tests=\"1\""), HasSubstr("skipped=\"1\""),
                         HasSubstr("the platform differs: emu and model"), Not(HasSubstr("<failure"))));
}

}  // namespace
}  // namespace xblk::report
