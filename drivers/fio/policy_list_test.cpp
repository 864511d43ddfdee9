#include "drivers/fio/policy_list.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace xblk::fio_engine {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::Pair;
using testing::UnorderedElementsAre;

TEST(PolicyList, SplitsPairsAndKeepsValuesAsTheyAre) {
  EXPECT_THAT(parse_policy_list("pools=per-queue,persistent=1,expression=a=b").value(),
              UnorderedElementsAre(Pair("pools", "per-queue"), Pair("persistent", "1"), Pair("expression", "a=b")));
}

TEST(PolicyList, NothingIsNoOverride) {
  EXPECT_THAT(parse_policy_list("").value(), IsEmpty());
}

TEST(PolicyList, AnEmptyValueIsAValue) {
  EXPECT_THAT(parse_policy_list("a=").value(), UnorderedElementsAre(Pair("a", "")));
}

TEST(PolicyList, RefusesWhatIsNoPairAndNamesIt) {
  for (const char* bad : {"persistent", "a=1,,b=2", "=1", "a=1,b"}) {
    const auto parsed = parse_policy_list(bad);
    ASSERT_FALSE(parsed) << bad;
    EXPECT_EQ(parsed.error().code, EINVAL);
    EXPECT_THAT(parsed.error().message, HasSubstr("is not key=value"));
  }
}

TEST(PolicyList, RefusesAKeyGivenTwice) {
  EXPECT_THAT(parse_policy_list("a=1,a=1").error().message, HasSubstr("'a' is given twice"));
}

}  // namespace
}  // namespace xblk::fio_engine
