#include "drivers/store/specification.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>

namespace xblk::store {
namespace {

using ::testing::HasSubstr;
using Kind = Specification::Kind;

Specification parsed(const std::string& text) {
  const auto specification = parse_specification(text);
  EXPECT_TRUE(specification) << text << ": " << specification.error().message;
  return specification.value_or(Specification());
}

std::string refusal(const std::string& text) {
  const auto specification = parse_specification(text);
  if (specification) return "accepted";
  EXPECT_EQ(specification.error().code, EINVAL);
  EXPECT_THAT(specification.error().message, HasSubstr("store '" + text + "': ")) << "the whole is quoted";
  return specification.error().message;
}

TEST(Specification, SizesTakeBinaryUnits) {
  EXPECT_EQ(parsed("null:512").size, Sectors(1));
  EXPECT_EQ(parsed("ram:64KiB").size, Sectors(128));
  EXPECT_EQ(parsed("ram:3M").size, Sectors(3 * 2048));
  EXPECT_EQ(parsed("null:1GiB").size, Sectors(2 * 1024 * 1024));
  EXPECT_EQ(parsed("null:1048576GiB").size, Sectors(std::uint64_t{1} << 41)) << "the largest";
}

TEST(Specification, PathsAreAbsoluteAndMayContainColons) {
  EXPECT_EQ(parsed("file:/dev/vg/lv").path, "/dev/vg/lv");
  EXPECT_EQ(parsed("file:/dev/vg/lv").size, Sectors(0)) << "as large as the file is";
  EXPECT_EQ(parsed("file:1MiB:/a:b:/c").path, "/a:b:/c");
  EXPECT_EQ(parsed("file:1MiB:/a:b:/c").size, Sectors(2048));
  EXPECT_EQ(parsed("file:/1MiB:/c").path, "/1MiB:/c");
}

TEST(Specification, LinksStandOutermostFirstBeforeAnyStore) {
  const auto one = parsed("throttled:70MB/s:500us:ram:1GiB");
  EXPECT_EQ(one.kind, Kind::ram);
  EXPECT_EQ(one.links, (std::vector<Link>{{70'000'000, micros(500)}}));
  const auto two = parsed("throttled:1MiB/s:0ns:throttled:2MB/s:3ms:file:4KiB:/a:b");
  EXPECT_EQ(two.links, (std::vector<Link>{{1 << 20, Nanos(0)}, {2'000'000, millis(3)}}));
  EXPECT_EQ(two.path, "/a:b");
  EXPECT_EQ(two.size, Sectors(8));
}

TEST(Specification, OnlyTheSizeTellsTheSameStoreFromItself) {
  const auto same = [](const std::string& a, const std::string& b) { return parsed(a).same_store_as(parsed(b)); };
  EXPECT_TRUE(same("ram:1MiB", "ram:2MiB"));
  EXPECT_TRUE(same("file:/a", "file:1MiB:/a"));
  EXPECT_TRUE(same("throttled:70MB/s:500us:ram:1MiB", "throttled:70MB/s:500us:ram:2MiB"));
  EXPECT_FALSE(same("ram:1MiB", "null:1MiB"));
  EXPECT_FALSE(same("file:/a", "file:/b"));
  EXPECT_FALSE(same("throttled:70MB/s:500us:ram:1MiB", "throttled:71MB/s:500us:ram:1MiB"));
  EXPECT_FALSE(same("throttled:70MB/s:500us:ram:1MiB", "throttled:70MB/s:400us:ram:1MiB"));
  EXPECT_FALSE(same("throttled:70MB/s:500us:ram:1MiB", "ram:1MiB"));
}

TEST(Specification, RefusalNamesTheWrongPartAndWhatIsAllowed) {
  for (const char* text : {"", "ram", "disk:1GiB", "ram 1GiB", "RAM:1GiB"})
    EXPECT_THAT(refusal(text), HasSubstr("write null:SIZE, ram:SIZE, file:PATH, file:SIZE:PATH or throttled:")) << text;
  for (const char* text : {"ram:", "ram:0", "ram:x", "ram:-1", "ram:1TiB5", "ram: 1MiB", "null:1048577GiB",
                           "null:99999999999999999999", "file:0:/a", "file:a:/b"})
    EXPECT_THAT(refusal(text), HasSubstr("is not a size from 512 bytes to 1 PiB (write 64MiB or 1GiB)")) << text;
  EXPECT_THAT(refusal("ram:513"), HasSubstr("the size '513' is not a multiple of 512 bytes"));
  for (const char* text : {"file:", "file:a", "file:1MiB", "file:1MiB:a"})
    EXPECT_THAT(refusal(text), HasSubstr("is not an absolute path (write file:/PATH or file:SIZE:/PATH)")) << text;
  EXPECT_THAT(refusal(std::string("file:/a\0b", 9)), HasSubstr("NUL"));
  for (const char* text : {"throttled:70:1ms:ram:1MiB", "throttled:0MB/s:1ms:ram:1MiB", "throttled:70Mb/s:1ms:ram:1MiB",
                           "throttled:1000001MB/s:1ms:ram:1MiB", "throttled::1ms:ram:1MiB"})
    EXPECT_THAT(refusal(text), HasSubstr("is not a rate from 1MB/s to 1000000MB/s (write 70MB/s or 64MiB/s)")) << text;
  for (const char* text : {"throttled:70MB/s:1:ram:1MiB", "throttled:70MB/s:1s:ram:1MiB", "throttled:70MB/s::ram:1MiB",
                           "throttled:70MB/s:10001ms:ram:1MiB"})
    EXPECT_THAT(refusal(text), HasSubstr("is not a round trip from 0ns to 10000ms (write 500us or 2ms)")) << text;
  EXPECT_THAT(refusal("throttled:70MB/s"), HasSubstr("a colon is missing after the rate '70MB/s'"));
  EXPECT_THAT(refusal("throttled:70MB/s:1ms:1GiB"), HasSubstr("'1GiB' is not a store"));
  const std::string link = "throttled:70MB/s:1ms:";
  EXPECT_THAT(refusal(link + link + link + link + link + "ram:1MiB"), HasSubstr("more than 4 links"));
}

}  // namespace
}  // namespace xblk::store
