#include "agent/report/report.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "agent/report/figures.hpp"
#include "agent/report/format.hpp"
#include "agent/report/svg_chart.hpp"
#include "agent/report/table.hpp"
#include "agent/report/test_results.hpp"

namespace xblk::report {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

// A point that failed, with text that tries to leave every format.
Results hostile_results() {
  Results results = example_results();
  results.run.profile_text = "</pre><script>alert(1)</script>";
  results.run.fingerprint["cpu_model"] = "a\"b<c>\x1b[31m";
  PointResult bad = results.points[0];
  bad.id = "bad]]>\"'<&";
  bad.params[1].second = "=1+1,\"x\"\n";
  bad.params[2].second = "on|*off*";
  for (Repeat& repeat : bad.repeats) {
    repeat.status = Outcome::failed;
    repeat.reason = "fio: \x1b[2Jexit 1 <b>|";
    repeat.fio_commands = {"fio '--name=<&>'"};
  }
  summarise(bad);
  results.points.push_back(std::move(bad));
  return results;
}

// Each point changes another parameter: a column for each would be a table of repetitions.
TEST(Report, ManyVaryingParametersAreNamedWhereTheyAreUnusual) {
  Results results = example_results();
  results.points.clear();
  for (int changed = 0; changed <= 6; ++changed) {
    Params params;
    for (int i = 1; i <= 6; ++i) params.emplace_back("p" + std::to_string(i), i == changed ? "on" : "off");
    results.points.push_back(example_point("point-" + std::to_string(changed), params, {1000}));
  }
  const SplitParams split = split_params(params_of(results));
  EXPECT_EQ(split.varying.size(), 6u);
  EXPECT_THAT(label_columns(split), ElementsAre("otherwise than most"));
  EXPECT_THAT(label_cells(results.points[0].params, split), ElementsAre("(nothing)"));
  EXPECT_THAT(label_cells(results.points[3].params, split), ElementsAre("p3=on"));
  for (const std::string& text :
       {render_text(results, false), render_markdown(results), render_html(results, nullptr)}) {
    EXPECT_THAT(text, AllOf(HasSubstr("p3=on"), Not(HasSubstr("p3=off"))));
  }
}

TEST(Report, EveryFormatSaysThatARunIsNotWhole) {
  Results results = example_results();
  EXPECT_THAT(render_text(results, false), Not(HasSubstr("not whole")));
  results.run.repeats = 4;
  for (const std::string& text :
       {render_text(results, false), render_markdown(results), render_html(results, nullptr)}) {
    EXPECT_THAT(text, HasSubstr("12 of 16 visits are measured"));
  }
}

TEST(ReportText, Golden) {
  EXPECT_EQ(render_text(example_results(), false),
            R"(quick  20261130T120000Z-quick
emulated hypervisor: not Xen figures
2026-11-30T12:00:00Z .. 2026-11-30T12:01:00Z  fio-3.33  xblk 0.1.0  order interleaved, seed 4711
all points: guests=2 rw=randread bs=4k iodepth=32 store=null:1g

queues  persistent  status     IOPS   interval or (range)    bandwidth  read p50  read p99
------  ----------  ------  -------  --------------------  -----------  --------  --------
     1          on  ok      402.0 k  (397.5 k .. 405.1 k)   1.53 GiB/s  75.62 µs  175.1 µs
     1         off  ok      151.2 k  (149.9 k .. 155.0 k)  590.6 MiB/s  201.1 µs  465.6 µs
     2          on  ok      431.0 k  (420.3 k .. 440.9 k)   1.64 GiB/s  70.53 µs  163.3 µs
     2         off  ok      160.4 k  (158.7 k .. 162.0 k)  626.6 MiB/s  189.5 µs  438.9 µs

queues persistent        1 on    1 off      2 on    2 off
-------------------  --------  -------  --------  -------
maps / I/O              0.000    1.000     0.000    1.000
unmaps / I/O            0.000    1.000     0.000    1.000
copies / I/O            0.000    0.000     0.000    0.000
copied / I/O           4096 B      0 B    4096 B      0 B
notifications / I/O     0.210    0.210     0.210    0.210
persistent hits       100.0 %    0.0 %   100.0 %    0.0 %
lock wait / I/O       3.50 ns  3.50 ns   3.50 ns  3.50 ns
front CPU / I/O       1.25 µs  1.25 µs   1.25 µs  1.25 µs
back CPU / I/O       640.0 ns  2.90 µs  640.0 ns  2.90 µs
)");
}

TEST(ReportText, NeverPassesControlCharactersOn) {
  const std::string plain = render_text(hostile_results(), false);
  EXPECT_THAT(plain, AllOf(HasSubstr("failed bad]]>\"'<&: repeat 0: fio: ?[2Jexit 1 <b>|"), Not(HasSubstr("\x1b"))));
  EXPECT_THAT(render_text(example_results(), true), HasSubstr("\x1b[32mok"));
}

TEST(ReportText, WithoutPoints) {
  Results empty = example_results();
  empty.points.clear();
  EXPECT_THAT(render_text(empty, false), HasSubstr("no points"));
  EXPECT_THAT(render_markdown(empty), HasSubstr("no points"));
  EXPECT_THAT(render_html(empty, nullptr), HasSubstr("</html>"));
  EXPECT_THAT(render_junit(empty), HasSubstr("tests=\"0\""));
}

TEST(ReportCsv, OneLinePerRepeatAndNoFormula) {
  const std::string csv = render_csv(hostile_results());
  EXPECT_EQ(std::count(csv.begin(), csv.end(), '\r'), 1 + 5 * 3);
  EXPECT_THAT(csv, HasSubstr("20261130T120000Z-quick,g2-q1-persistent-randread-bs4k-qd32,0,0,ok,,2,1,on,randread,4k,32,"
                             "null:1g,402000,1646592000,"));
  EXPECT_THAT(csv, HasSubstr("\"'=1+1,\"\"x\"\"\n\""));
}

TEST(ReportMarkdown, EscapesPipes) {
  const std::string markdown = render_markdown(hostile_results());
  EXPECT_THAT(markdown, HasSubstr("| 1 | on | ok | 402.0 k |"));
  EXPECT_THAT(markdown, HasSubstr("on\\|\\*off\\*"));
  EXPECT_THAT(markdown, HasSubstr("failed bad\\]\\]\\>\"'\\<&: repeat 0"));
}

TEST(ReportJunit, StatesAndProperties) {
  Results results = hostile_results();
  results.points[1].status = Outcome::inconclusive;
  results.points[1].reason = "depth 17 of 32";
  const std::string xml = render_junit(results);
  EXPECT_THAT(
      xml,
      AllOf(HasSubstr("<testsuite name=\"quick\" tests=\"5\" failures=\"1\" errors=\"0\" skipped=\"1\""),
            HasSubstr("<property name=\"host.cpus\" value=\"2\"/>"), HasSubstr("<skipped message=\"depth 17 of 32\"/>"),
            HasSubstr("name=\"bad]]&gt;&quot;&#39;&lt;&amp;\""),
            HasSubstr("<failure message=\"repeat 0: fio: ?[2Jexit 1 &lt;b&gt;|\"/>"), Not(HasSubstr("\x1b"))));
}

TEST(ReportHtml, IsSelfContainedAndEscaped) {
  const Results results = hostile_results();
  CompareOptions options;
  options.by = *parse_by_parameter("persistent=on:off");
  const auto comparison = compare(results, results, options);
  ASSERT_TRUE(comparison.has_value());
  const std::string html = render_html(results, &*comparison);
  EXPECT_THAT(html, AllOf(HasSubstr("emulated hypervisor: not Xen figures"), HasSubstr("<svg role=\"img\""),
                          HasSubstr("fio &#39;--name=&lt;&amp;&gt;&#39;"), HasSubstr("a&quot;b&lt;c&gt;?[31m"),
                          HasSubstr("every new value is below every base value")));
  // Nothing is fetched, nothing is run, and no text became markup.
  EXPECT_THAT(html, AllOf(Not(HasSubstr("<script")), Not(HasSubstr("http://")), Not(HasSubstr("https://")),
                          Not(HasSubstr("src=")), Not(HasSubstr("href=")), Not(HasSubstr("\x1b"))));
  EXPECT_THAT(html, Not(HasSubstr("nan")));
}

TEST(ReportHtml, OtherPlatformsAreLabelled) {
  Results results = example_results();
  results.run.platform = "model";
  EXPECT_THAT(render_html(results, nullptr), HasSubstr("model in virtual time: computed, not measured"));
  results.run.platform = "xen";
  EXPECT_THAT(render_html(results, nullptr), HasSubstr("measured on Xen"));
}

TEST(SvgChart, TicksAreRoundAndCoverTheValues) {
  EXPECT_THAT(linear_ticks(437'000, 6), ElementsAre(0, 100'000, 200'000, 300'000, 400'000, 500'000));
  EXPECT_THAT(linear_ticks(1, 2), ElementsAre(0, 0.5, 1));
  EXPECT_THAT(linear_ticks(0, 6), ElementsAre(0, 1));
}

TEST(SvgChart, MissingValuesAreSaid) {
  BarChart chart;
  chart.title = "x";
  chart.format = human_iops;
  chart.rows = {{"here", 5.0, 4.0, 6.0, {4, 5, 6}, 0}, {"gone", {}, {}, {}, {}, 1}};
  const std::string svg = render_bar_chart(chart);
  EXPECT_THAT(svg, AllOf(HasSubstr("no value"), HasSubstr("class=\"whisker\"")));
  EXPECT_EQ(render_percentile_chart(PercentileChart{}), "") << "no value at all: no chart";
}

TEST(Format, Units) {
  EXPECT_EQ(human_iops(0), "0.00");
  EXPECT_EQ(human_iops(999), "999.0");
  EXPECT_EQ(human_iops(1'234'567), "1.23 M");
  EXPECT_EQ(human_ns(78'100), "78.10 µs");
  EXPECT_EQ(human_bandwidth(1646592000), "1.53 GiB/s");
  EXPECT_EQ(human_mechanism("persistent_hit_ratio", 0.9951), "99.5 %");
  EXPECT_EQ(human_mechanism("from_a_newer_version", 1.5), "1.500");
  EXPECT_EQ(trim_zeros("100.0 k"), "100 k");
  EXPECT_EQ(trim_zeros("0.50"), "0.5");
  EXPECT_EQ(trim_zeros("100 k"), "100 k");
}

TEST(TableTest, AlignsByCharactersNotBytes) {
  const Table table{{{"latency", true}, {"x"}}, {{"1 µs", "a"}, {"10 ns", "b"}}};
  EXPECT_EQ(render_table(table, nullptr), "latency  x\n-------  -\n   1 µs  a\n  10 ns  b\n");
}

}  // namespace
}  // namespace xblk::report
