#include "agent/fio/result.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "agent/host/files.hpp"

namespace xblk::fio {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;

FioResult fixture(const std::string& name) {
  const auto text = host::read_file(std::string(XBLK_SOURCE_DIR) + "/agent/fio/testdata/" + name, kMaxOutputBytes);
  EXPECT_TRUE(text) << name;
  return read_result(text.value_or(""));
}

TEST(ReadResult, NumbersOfAPlainRun) {
  const auto result = fixture("1.out");
  EXPECT_EQ(result.version, (Version{3, 33}));
  ASSERT_EQ(result.jobs.size(), 1U);
  const Direction& read = result.jobs[0].directions.at(Way::kRead);
  EXPECT_EQ(read.io_bytes, 2097152U);
  EXPECT_EQ(read.total_ios, 512U);
  EXPECT_EQ(read.runtime_ms, 26U);
  EXPECT_NEAR(read.iops(), 19692.3, 0.1);
  EXPECT_EQ(read.latency.samples, 512U);
  EXPECT_EQ(read.latency.max_ns, 236432U);
  EXPECT_TRUE(read.latency.percentiles_ns.empty()) << "fio put them into clat";
  EXPECT_EQ(read.completion_latency.percentiles_ns.at(99.9), 236544U);
  EXPECT_DOUBLE_EQ(result.jobs[0].iodepth_level.at("1"), 100);
  EXPECT_THAT(result.diagnostics, ElementsAre(HasSubstr("queue depth will be capped at 1")));
}

TEST(ReadResult, NothingMeasuredIsAbsentNotZero) {
  const auto result = fixture("9.out");
  const Latency& write = result.jobs[0].directions.at(Way::kWrite).completion_latency;
  EXPECT_EQ(write.samples, 0U);
  EXPECT_FALSE(write.min_ns || write.max_ns || write.mean_ns);
  EXPECT_TRUE(write.percentiles_ns.empty());
  const auto reduced = fixture("10.out");
  EXPECT_FALSE(reduced.sum(Way::kRead)->latency.mean_ns) << "gtod_reduce takes no time stamps";
  EXPECT_EQ(reduced.sum(Way::kRead)->total_ios, 512U);
}

TEST(ReadResult, PercentilesWhereLatPercentilesPutsThem) {
  const Direction read = *fixture("11.out").sum(Way::kRead);
  EXPECT_FALSE(read.latency.percentiles_ns.empty());
  EXPECT_TRUE(read.completion_latency.percentiles_ns.empty());
}

TEST(ReadResult, LastOfSeveralDocumentsCounts) {
  const auto result = fixture("3.out");
  EXPECT_TRUE(result.flags.several_documents);
  EXPECT_EQ(result.sum(Way::kRead)->total_ios, 45259U);
}

TEST(ReadResult, RepeatedOptionsAreAllKept) {
  const auto result = fixture("7.out");
  EXPECT_TRUE(result.flags.duplicate_keys);
  EXPECT_THAT(result.jobs[0].options, Contains(std::pair<std::string, std::string>("filename", "f.dat")));
  EXPECT_THAT(result.jobs[0].options, Contains(std::pair<std::string, std::string>("filename", "g.dat")));
}

TEST(ReadResult, BrokenTextIsRepairedAndFlagged) {
  const auto result = fixture("8.out");
  EXPECT_TRUE(result.problems.empty());
  EXPECT_TRUE(result.flags.control_characters);
  EXPECT_TRUE(result.flags.invalid_utf8);
  EXPECT_EQ(result.jobs[0].name, "a\tb");
  EXPECT_THAT(result.global_options, Contains(std::pair<std::string, std::string>("filename", "f.dat")));
}

TEST(ReadResult, AllClientsIsNotAJob) {
  const auto result = fixture("6.out");
  EXPECT_TRUE(result.flags.client_mode);
  EXPECT_TRUE(result.flags.all_clients_dropped);
  EXPECT_EQ(result.jobs.size(), 2U);
  const Direction read = *result.sum(Way::kRead);
  EXPECT_EQ(read.total_ios, 1024U);
  EXPECT_EQ(read.runtime_ms, 25U);
  EXPECT_TRUE(read.completion_latency.percentiles_ns.empty()) << "two sets of percentiles have no average";
}

TEST(ReadResult, UnifiedReportingIsKeptApart) {
  const auto result = fixture("12.out");
  EXPECT_FALSE(result.sum(Way::kRead));
  EXPECT_EQ(result.jobs[0].mixed->total_ios, 512U);
}

TEST(ReadResult, SteadyState) {
  EXPECT_TRUE(fixture("38.out").jobs[0].steady_state_attained);
}

TEST(ReadResult, StandardOutputStandsInForAMissingFile) {
  const std::string document = "{\n\"fio version\" : \"fio-3.33\",\n\"jobs\" : []\n}\n";
  EXPECT_TRUE(read_result("", document).problems.empty());
  const auto both = read_result(document, "note: x\n", "fio: y\n");
  EXPECT_TRUE(both.problems.empty());
  EXPECT_THAT(both.diagnostics, ElementsAre("fio: y", "note: x"));
}

TEST(ReadResult, ProblemsAreNamed) {
  EXPECT_THAT(read_result("").problems, ElementsAre("fio wrote no JSON document"));
  EXPECT_THAT(read_result("{\n \"jobs").problems, ElementsAre("the JSON document is cut off"));
  EXPECT_THAT(read_result("{\n \"jobs\" 1 }").problems, ElementsAre(HasSubstr("damaged: not JSON at byte")));
  EXPECT_THAT(read_result("{\"fio version\":\"fio-2.16\",\"jobs\":[]}").problems,
              ElementsAre(HasSubstr("3.18 or later")));
  EXPECT_THAT(read_result("{\"fio version\":\"fio-3.33\"}").problems, ElementsAre("the document has no list of jobs"));
  EXPECT_THAT(read_result("{\"fio version\":\"fio-3.33\",\"jobs\":[{\"jobname\":\"a\"}]}").problems,
              ElementsAre("job 'a': has no error field"));
  // More bytes than the bound, without holding a real document of that size.
  EXPECT_THAT(read_result(std::string(kMaxOutputBytes + 1, '\n')).problems, ElementsAre(HasSubstr("more than 64 MiB")));
}

TEST(ReadResult, NegativeOrTextualCountsAreProblemsNotNumbers) {
  const auto result = read_result(
      "{\"fio version\":\"fio-3.33\",\"jobs\":[{\"jobname\":\"a\",\"error\":0,"
      "\"read\":{\"io_bytes\":-1,\"total_ios\":\"7\",\"runtime\":3}}]}");
  EXPECT_THAT(result.problems, ElementsAre("job 'a': read: io_bytes is missing or not a count",
                                           "job 'a': read: total_ios is missing or not a count"));
}

TEST(ReadResult, GlobalOptionsOfSeveralServers) {
  const auto result = read_result(
      "{\"fio version\":\"fio-3.39\",\"global options\":[{\"hostname\":\"h1\",\"bs\":\"4k\"},{\"bs\":\"8k\"}],"
      "\"client_stats\":[]}");
  EXPECT_TRUE(result.problems.empty());
  EXPECT_THAT(result.global_options, Contains(std::pair<std::string, std::string>("bs", "8k")));
}

TEST(Latency, MergeUsesHistograms) {
  const Latency fast{.samples = 90,
                     .min_ns = 10,
                     .max_ns = 10,
                     .mean_ns = 10,
                     .percentiles_ns = {{50, 10}, {99, 10}},
                     .histogram = {{10, 90}}};
  const Latency slow{.samples = 10,
                     .min_ns = 1000,
                     .max_ns = 1000,
                     .mean_ns = 1000,
                     .percentiles_ns = {{50, 1000}, {99, 1000}},
                     .histogram = {{1000, 10}}};
  const Latency parts[] = {fast, slow, Latency{}};
  const Latency merged = merge(parts);
  EXPECT_EQ(merged.samples, 100U);
  EXPECT_EQ(merged.min_ns, 10U);
  EXPECT_EQ(merged.max_ns, 1000U);
  EXPECT_DOUBLE_EQ(*merged.mean_ns, 109);
  EXPECT_EQ(merged.percentiles_ns.at(50), 10U);
  EXPECT_EQ(merged.percentiles_ns.at(99), 1000U);
}

TEST(Latency, MergeWithoutHistogramsHasNoPercentiles) {
  const Latency one{.samples = 1, .min_ns = 1, .max_ns = 1, .mean_ns = 1, .percentiles_ns = {{50, 1}}, .histogram = {}};
  const Latency alone[] = {one, Latency{}};
  EXPECT_EQ(merge(alone).percentiles_ns.at(50), 1U) << "fio's own are exact for one part";
  const Latency two[] = {one, one};
  EXPECT_TRUE(merge(two).percentiles_ns.empty());
  EXPECT_DOUBLE_EQ(*merge(two).mean_ns, 1);
}

TEST(Latency, NearestRank) {
  const std::map<std::uint64_t, std::uint64_t> histogram{{1, 50}, {2, 49}, {3, 1}};
  EXPECT_EQ(percentile_of(histogram, 50), 1U);
  EXPECT_EQ(percentile_of(histogram, 50.1), 2U);
  EXPECT_EQ(percentile_of(histogram, 99), 2U);
  EXPECT_EQ(percentile_of(histogram, 99.9), 3U);
  EXPECT_EQ(percentile_of(histogram, 100), 3U);
}

TEST(Version, Parses) {
  EXPECT_EQ(parse_version("fio-3.36-17-gb5904"), (Version{3, 36}));
  EXPECT_EQ(parse_version("fio-2.1.10"), (Version{2, 1}));
  EXPECT_LT((Version{3, 9}), (Version{3, 10}));
  for (const char* bad : {"", "3.33", "fio-", "fio-3", "fio-x.y", "fio-3.", "fio--3.1"}) {
    EXPECT_FALSE(parse_version(bad)) << bad;
  }
}

}  // namespace
}  // namespace xblk::fio
