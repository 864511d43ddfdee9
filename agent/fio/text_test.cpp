#include "agent/fio/text.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "agent/fio/tolerant_json.hpp"

namespace xblk::fio {
namespace {

using testing::ElementsAre;

TEST(SplitDocuments, TextBeforeBetweenAndAfter) {
  const auto stream =
      split_documents("note\n{\n \"a\" : 1\n}\n\nfio: terminating\n{\n \"b\" : \"}\\\"}\"\n}\nDisk stats\n");
  ASSERT_EQ(stream.documents.size(), 2U);
  EXPECT_EQ(stream.documents[0], "{\n \"a\" : 1\n}");
  EXPECT_EQ(stream.documents[1], "{\n \"b\" : \"}\\\"}\"\n}");
  EXPECT_THAT(stream.text, ElementsAre("note", "fio: terminating", "Disk stats"));
  EXPECT_FALSE(stream.truncated_last);
}

TEST(SplitDocuments, OnlyColumnZeroBeginsADocument) {
  const auto stream = split_documents("  {\"a\":1}\nx {\n}\n");
  EXPECT_TRUE(stream.documents.empty());
  EXPECT_THAT(stream.text, ElementsAre("  {\"a\":1}", "x {", "}"));
}

TEST(SplitDocuments, CutOff) {
  EXPECT_TRUE(split_documents("{\n \"a\" : 1").truncated_last);
  EXPECT_TRUE(split_documents("{\n}\n{\n \"a").truncated_last);
  // The first is cut off in mid-string, the second is whole.
  const auto stream = split_documents("{\n \"a\" : \"x\n{\n \"b\" : 1\n}\n");
  EXPECT_THAT(stream.documents, ElementsAre("{\n \"b\" : 1\n}"));
  EXPECT_FALSE(stream.truncated_last);
}

TEST(SplitDocuments, EndlessOpeningsAreLinear) {
  std::string hostile;
  for (int i = 0; i < 1'000'000; ++i) hostile += "{\n";
  EXPECT_TRUE(split_documents(hostile).truncated_last);
}

TEST(SplitDocuments, TextIsBounded) {
  std::string noise;
  for (int i = 0; i < 10'000; ++i) noise += std::string(2000, 'x') + "\n";
  const auto stream = split_documents(noise);
  EXPECT_EQ(stream.text.size(), kMaxLines);
  EXPECT_EQ(stream.text[0].size(), kMaxLineBytes);
}

TEST(Repair, ControlCharactersAreEscaped) {
  const auto fixed = repair("{ \"a\tb\" : \"x\x01y\" }");
  EXPECT_EQ(fixed.text, "{ \"a\\u0009b\" : \"x\\u0001y\" }");
  EXPECT_TRUE(fixed.control_characters);
  EXPECT_FALSE(fixed.invalid_utf8);
}

TEST(Repair, InvalidUtf8IsReplacedAndValidIsKept) {
  EXPECT_EQ(repair("{\"\xff\"}").text, "{\"\xEF\xBF\xBD\"}");
  EXPECT_EQ(repair("{\"\xc0\xaf\"}").text, "{\"\xEF\xBF\xBD\xEF\xBF\xBD\"}") << "overlong";
  EXPECT_EQ(repair("{\"\xed\xa0\x80\"}").text, "{\"\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\"}") << "surrogate";
  EXPECT_EQ(repair("{\"\xf4\x90\x80\x80\"}").invalid_utf8, true) << "above U+10FFFF";
  EXPECT_EQ(repair("{\"\xe2\x82\"}").text, "{\"\xEF\xBF\xBD\xEF\xBF\xBD\"}") << "cut off by the quote";
  const auto kept = repair("{\"\xc2\xb5s \xe2\x82\xac \xf0\x9f\x98\x80\"}");
  EXPECT_EQ(kept.text, "{\"\xc2\xb5s \xe2\x82\xac \xf0\x9f\x98\x80\"}");
  EXPECT_FALSE(kept.invalid_utf8);
}

TEST(Repair, AnEscapedQuoteDoesNotEndAString) {
  EXPECT_EQ(repair("{\"a\\\"nan\" : nan, \"b\" : -inf, \"c\" : true}").text,
            "{\"a\\\"nan\" : null, \"b\" : null, \"c\" : true}");
}

TEST(Repair, ABackslashBeforeADamagedByte) {
  EXPECT_EQ(repair("{\"\\\xff\"}").text, "{\"\\\xEF\xBF\xBD\"}");
  EXPECT_EQ(repair("{\"\\").text, "{\"\\");
}

TEST(OneLine, NeverHasANewline) {
  EXPECT_EQ(one_line("a\nb\x01\xff \n"), "a b \xEF\xBF\xBD");
}

TEST(TolerantJson, KeepsEveryValueOfARepeatedKey) {
  const auto parsed = parse_tolerant(R"({"f":"a","f":"b","f":"c","g":[1],"h":{"f":1}})").value();
  EXPECT_TRUE(parsed.duplicate_keys);
  EXPECT_EQ(parsed.value["f"], nlohmann::json::array({"a", "b", "c"}));
  EXPECT_EQ(parsed.value["g"], nlohmann::json::array({1}));
  EXPECT_EQ(parsed.value["h"]["f"], 1);
}

TEST(TolerantJson, RepeatedKeyWhoseValuesAreContainers) {
  const auto parsed = parse_tolerant(R"({"f":{"a":1},"f":[2],"f":{"b":3}})").value();
  EXPECT_EQ(parsed.value["f"].dump(), R"([{"a":1},[2],{"b":3}])");
}

TEST(TolerantJson, DepthIsBounded) {
  EXPECT_TRUE(parse_tolerant(std::string(32, '[') + std::string(32, ']')));
  const auto deep = parse_tolerant(std::string(100'000, '['));
  ASSERT_FALSE(deep);
  EXPECT_EQ(deep.error().message, "nested deeper than 32 levels");
}

TEST(TolerantJson, Damage) {
  EXPECT_FALSE(parse_tolerant(""));
  EXPECT_FALSE(parse_tolerant("{\"a\":}"));
  EXPECT_FALSE(parse_tolerant("{} x"));
}

}  // namespace
}  // namespace xblk::fio
