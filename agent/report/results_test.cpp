#include "agent/report/results.hpp"

#include <filesystem>
#include <fstream>
#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "agent/report/mechanism.hpp"
#include "agent/report/test_results.hpp"

namespace xblk::report {
namespace {

using testing::HasSubstr;

std::string dump(const Results& results) {
  return to_json(results).dump();
}

std::string error_of(Json document) {
  const auto results = from_json(document.dump(), "r.json");
  return results ? "no error" : results.error().message;
}

TEST(Results, RoundTrip) {
  const Results results = example_results();
  const auto again = from_json(dump(results), "r.json");
  ASSERT_TRUE(again.has_value()) << again.error().message;
  EXPECT_EQ(dump(*again), dump(results));
}

TEST(Results, RoundTripOfARunThatWasResumed) {
  Results results = example_results();
  results.run.repeats = 5;
  results.run.sittings = {{"2026-11-30T12:00:00Z", "", "xblk run a.yaml", "0.1.0"},
                          {"2026-11-30T13:00:00Z", "2026-11-30T13:01:00Z", "xblk run --resume r", "0.1.1"}};
  results.points[0].repeats[2].sitting = 1;
  results.points[1].repeats[2].interrupted = true;
  const auto again = from_json(dump(results), "r.json");
  ASSERT_TRUE(again.has_value()) << again.error().message;
  EXPECT_EQ(dump(*again), dump(results));
  EXPECT_EQ(again->run.repeats, 5u);
  EXPECT_EQ(again->run.sittings.at(1).command_line, "xblk run --resume r");
  EXPECT_EQ(again->points[0].repeats[2].sitting, 1u);
  EXPECT_TRUE(again->points[1].repeats[2].interrupted);
  EXPECT_NE(dump(*again), dump(example_results()));
}

TEST(Results, SummariseTakesMediansAndNoIntervalBelowFive) {
  const PointResult point = example_point("p", {{"queues", "1"}}, {100, 300, 200});
  EXPECT_EQ(point.status, Outcome::ok);
  EXPECT_DOUBLE_EQ(point.iops->median, 200);
  EXPECT_EQ(point.iops->n, 3u);
  EXPECT_FALSE(point.iops->low.has_value());
  EXPECT_THAT(point.iops->method, HasSubstr("no interval below 5 repeats"));
  EXPECT_DOUBLE_EQ(point.mechanism.at("unmaps_per_io").median, 1);
  EXPECT_FALSE(point.mechanism.contains("tlb_ipis_per_io")) << "null in every repeat";
  EXPECT_EQ(point.fio_command, "fio --name=p");
}

TEST(Results, SummariseGivesAnIntervalFromFiveOn) {
  const PointResult point = example_point("p", {}, {100, 110, 90, 105, 95});
  ASSERT_TRUE(point.iops->low.has_value());
  EXPECT_LE(*point.iops->low, 100);
  EXPECT_GE(*point.iops->high, 100);
}

TEST(Results, OneBadRepeatSpoilsThePoint) {
  PointResult point = example_point("p", {}, {100, 300, 200});
  point.repeats[1].status = Outcome::inconclusive;
  point.repeats[1].reason = "depth 17 of 32";
  summarise(point);
  EXPECT_EQ(point.status, Outcome::inconclusive);
  EXPECT_EQ(point.reason, "repeat 1: depth 17 of 32");
  EXPECT_EQ(point.iops->n, 2u) << "only proven repeats are aggregated";
  point.repeats[2].status = Outcome::failed;
  point.repeats[2].reason = "fio: exit 1";
  summarise(point);
  EXPECT_EQ(point.status, Outcome::failed);
  EXPECT_EQ(point.reason, "repeat 2: fio: exit 1");
  point.repeats.clear();
  summarise(point);
  EXPECT_EQ(point.reason, "no repeat ran");
  EXPECT_FALSE(point.iops.has_value());
}

TEST(Results, ErrorsNameThePointer) {
  const Json good = to_json(example_results());
  const auto with = [&](const char* pointer, Json value) {
    Json bad = good;
    bad[Json::json_pointer(pointer)] = std::move(value);
    return error_of(std::move(bad));
  };
  EXPECT_EQ(with("/points/1/iops/median", "many"), "r.json: /points/1/iops/median: expected a number, found string");
  EXPECT_EQ(with("/points/0/status", "fine"),
            "r.json: /points/0/status: expected ok, failed or inconclusive, found 'fine'");
  EXPECT_EQ(with("/points/0/repeats/2/index", -1),
            "r.json: /points/0/repeats/2/index: expected an integer of at least 0, found number");
  EXPECT_EQ(with("/points/0/repeats/0/iops", nullptr), "r.json: /points/0/repeats/0: an ok repeat needs iops above 0");
  EXPECT_EQ(with("/points/0/latency_ns/sideways", Json::object()),
            "r.json: /points/0/latency_ns/sideways: unknown name 'sideways'");
  EXPECT_EQ(with("/points/0/params/a~1b", 5), "r.json: /points/0/params/a~1b: expected a string, found number");
  EXPECT_EQ(with("/run/seed", 1.5), "r.json: /run/seed: expected an integer of at least 0, found number");
  EXPECT_EQ(with("/run/sittings", {{"started", 1}}), "r.json: /run/sittings: expected an array, found object");
  EXPECT_EQ(with("/points/0/repeats/0/interrupted", 1),
            "r.json: /points/0/repeats/0/interrupted: expected true or false, found number");
  EXPECT_EQ(with("/points", Json::object()), "r.json: /points: expected an array, found object");
  EXPECT_EQ(with("/format", "other"), "r.json: /: not a results file of xblk (\"format\" is 'other')");
  EXPECT_EQ(with("/version", 2),
            "r.json: /: results version 2, but this xblk reads version 1; use the xblk that wrote the file");
  Json missing = good;
  missing["points"][0].erase("params");
  EXPECT_EQ(error_of(missing), "r.json: /points/0: 'params' is missing");
  EXPECT_EQ(error_of(Json::array()), "r.json: /: expected an object, found array");
}

TEST(Results, NotJson) {
  const auto results = from_json("{\"format\": ", "r.json");
  ASSERT_FALSE(results.has_value());
  EXPECT_THAT(results.error().message, HasSubstr("r.json: not JSON: "));
  EXPECT_THAT(results.error().message, testing::Not(HasSubstr("\n")));
}

TEST(Results, DepthIsBounded) {
  Json deep = 1;
  for (int i = 0; i < 100; ++i) deep = Json{{"\\\"[", deep}};
  Json document = to_json(example_results());
  document["points"][0]["repeats"][0]["proof"] = deep;
  EXPECT_EQ(error_of(document), "r.json: nested more deeply than any results file");
  EXPECT_FALSE(from_json(std::string(1 << 20, '['), "r.json").has_value());
  document["points"][0]["repeats"][0]["proof"] = {{"text", std::string(100, '[')}};
  EXPECT_EQ(error_of(document), "no error") << "brackets in text are text";
}

// The file is also what profiles/schema/schema_test.py holds the schema to. Old files must stay readable: a change that
// breaks this test needs a new version number.
TEST(Results, FormatIsTheOneOnRecord) {
  std::ifstream file(XBLK_SOURCE_DIR "/agent/report/testdata/results-v1.json");
  std::ostringstream recorded;
  recorded << file.rdbuf();
  EXPECT_EQ(to_json(example_results()).dump(2) + "\n", recorded.str());
}

TEST(Results, SchemaDescribesEveryMechanism) {
  std::ifstream file(XBLK_SOURCE_DIR "/profiles/schema/results.schema.json");
  const Json schema = Json::parse(file);
  const Json& described = schema["definitions"]["mechanism"]["properties"];
  EXPECT_EQ(described.size(), kMechanisms.size());
  for (const MechanismInfo& info : kMechanisms) {
    EXPECT_EQ(described.value(std::string(info.name), Json::object()).value("description", ""), info.meaning);
  }
}

class ResultsFile : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = testing::TempDir() + "xblk-results-XXXXXX";
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    directory_ = pattern;
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }
  std::filesystem::path directory_;
};

TEST_F(ResultsFile, WriteThenLoad) {
  const std::string path = directory_ / "results.json";
  const Results results = example_results();
  ASSERT_TRUE(write_results(path, results).has_value());
  const auto again = load_results(path);
  ASSERT_TRUE(again.has_value()) << again.error().message;
  EXPECT_EQ(dump(*again), dump(results));
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(directory_), {}), 1) << "no temporary file is left";
}

TEST_F(ResultsFile, BytesThatAreNotUtf8AreReplaced) {
  const std::string path = directory_ / "results.json";
  Results results = example_results();
  results.points[0].reason = "fio said \xff";
  ASSERT_TRUE(write_results(path, results).has_value());
  EXPECT_TRUE(load_results(path).has_value());
}

TEST_F(ResultsFile, MissingDirectory) {
  const auto status = write_results(directory_ / "none" / "results.json", example_results());
  ASSERT_FALSE(status.has_value());
  EXPECT_EQ(status.error().code, ENOENT);
}

TEST_F(ResultsFile, ADirectoryIsNotAResultsFile) {
  EXPECT_FALSE(load_results(directory_).has_value());
}

TEST(MechanismTable, NamesAreFoundAndUnknownOnesAreNot) {
  EXPECT_EQ(find_mechanism("copied_bytes_per_io")->unit, "B");
  EXPECT_EQ(find_mechanism("warp"), nullptr);
}

}  // namespace
}  // namespace xblk::report
