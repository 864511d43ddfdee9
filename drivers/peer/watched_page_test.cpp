#include "drivers/peer/watched_page.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cstddef>

#include "drivers/base/units.hpp"
#include "drivers/platform/barriers.hpp"

namespace xblk::peer {
namespace {

struct alignas(kPageSize) Page {
  std::array<std::byte, kPageSize> bytes{};
};

TEST(WatchedPage, SeesEachAccessOnceInItsOrder) {
  static Page page;
  auto* words = reinterpret_cast<std::uint32_t*>(page.bytes.data());
  WatchedPage watched(page.bytes.data());
  platform::store_release(words[3], 7u);
  // Not the word just written: of one that was released before, ThreadSanitizer's own acquire reads twice.
  const std::uint32_t first = platform::load_acquire(words[4]);
  const std::uint32_t second = platform::load_acquire(words[1000]);
  const auto seen = watched.stop();
  EXPECT_EQ(words[3], 7u);
  EXPECT_EQ(first, 0u);
  EXPECT_EQ(second, 0u);
  ASSERT_EQ(seen.size(), 3u);
  EXPECT_TRUE(seen[0].offset == 12 && seen[0].write);
  EXPECT_TRUE(seen[1].offset == 16 && !seen[1].write);
  EXPECT_TRUE(seen[2].offset == 4000 && !seen[2].write);
}

TEST(WatchedPage, LeavesThePageAsOthersExpectIt) {
  static Page page;
  { const WatchedPage watched(page.bytes.data()); }
  page.bytes[5] = std::byte{1};
  EXPECT_EQ(page.bytes[5], std::byte{1});
}

}  // namespace
}  // namespace xblk::peer
