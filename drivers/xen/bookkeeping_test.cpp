// What needs no Xen: which page is shared under which reference, and which handle names which mapping.
#include <gtest/gtest.h>

#include <vector>

#include "drivers/xen/mappings.hpp"
#include "drivers/xen/shared_pages.hpp"

namespace xblk::xen {
namespace {

class SharedPagesTest : public ::testing::Test {
 protected:
  // Never dereferenced: the table only compares addresses.
  std::byte* page(std::size_t number) { return memory_.data() + number * kPageSize; }

  std::vector<std::byte> memory_ = std::vector<std::byte>(16 * kPageSize);
  SharedPages shared_;
};

TEST_F(SharedPagesTest, FindsEveryByteOfEveryBlockAndNothingElse) {
  const auto high = shared_.add(page(8), kDom0, std::vector<std::uint32_t>{80, 81});
  const auto low = shared_.add(page(2), kDom0, std::vector<std::uint32_t>{20, 21, 22});
  EXPECT_EQ(shared_.frame_of(page(2)), low.first_frame);
  EXPECT_EQ(shared_.frame_of(page(4) + 4095), FrameNumber(low.first_frame.value() + 2));
  EXPECT_EQ(shared_.frame_of(page(9)), FrameNumber(high.first_frame.value() + 1));
  EXPECT_EQ(shared_.frame_of(page(2) - 1), std::nullopt);
  EXPECT_EQ(shared_.frame_of(page(5)), std::nullopt);
  EXPECT_EQ(shared_.frame_of(page(8) - 1), std::nullopt);
  EXPECT_EQ(shared_.frame_of(page(10)), std::nullopt);
}

TEST_F(SharedPagesTest, ReferencesNeedNotBeAdjacent) {
  const auto block = shared_.add(page(0), kDom0, std::vector<std::uint32_t>{900, 17, 44});
  const std::vector<std::uint32_t> expected{900, 17, 44};
  for (std::uint32_t i = 0; i < 3; ++i) {
    const auto gref = shared_.gref_of(kDom0, FrameNumber(block.first_frame.value() + i));
    ASSERT_TRUE(gref) << gref.error().message;
    EXPECT_EQ(*gref, GrantRef(expected[i]));
  }
}

TEST_F(SharedPagesTest, RefusesAnotherPeerAndFramesThatAreNotAllocated) {
  const auto block = shared_.add(page(0), DomId(5), std::vector<std::uint32_t>{9});
  EXPECT_EQ(shared_.gref_of(DomId(6), block.first_frame).error().code, EINVAL);
  EXPECT_NE(shared_.gref_of(DomId(6), block.first_frame).error().message.find("domain 5"), std::string::npos);
  EXPECT_EQ(shared_.gref_of(DomId(5), FrameNumber(block.first_frame.value() + 1)).error().code, EINVAL);
  EXPECT_EQ(shared_.gref_of(DomId(5), FrameNumber(0xffffffff)).error().code, EINVAL);
  shared_.remove(block);
  EXPECT_EQ(shared_.gref_of(DomId(5), block.first_frame).error().code, EINVAL);
  EXPECT_EQ(shared_.frame_of(page(0)), std::nullopt);
}

TEST_F(SharedPagesTest, FrameNumbersAreUsedAgain) {
  const std::vector<std::uint32_t> two{1, 2};
  const auto first = shared_.add(page(0), kDom0, two);
  const auto second = shared_.add(page(2), kDom0, two);
  shared_.remove(first);
  EXPECT_EQ(shared_.pages(), 2u);
  const auto wide = shared_.add(page(4), kDom0, std::vector<std::uint32_t>{3, 4, 5});
  EXPECT_EQ(wide.first_frame, FrameNumber(4)) << "three do not fit into the gap of two";
  EXPECT_EQ(shared_.add(page(0), kDom0, two).first_frame, FrameNumber(0));
  shared_.remove(wide);
  shared_.remove(second);
  EXPECT_EQ(shared_.add(page(2), kDom0, std::vector<std::uint32_t>{6, 7, 8, 9, 10, 11}).first_frame, FrameNumber(2))
      << "a gap at the end grows";
}

TEST(Mappings, StaleHandleIsRefusedThoughItsAddressIsUsedAgain) {
  std::byte page{};
  std::byte other{};
  Mappings mappings;
  const MapHandle gone = mappings.add(&page);
  EXPECT_FALSE(mappings.claim(gone, &other));
  EXPECT_TRUE(mappings.claim(gone, &page));
  EXPECT_FALSE(mappings.claim(gone, &page));
  const MapHandle live = mappings.add(&page);
  EXPECT_FALSE(mappings.claim(gone, &page));
  EXPECT_EQ(mappings.size(), 1u);
  EXPECT_TRUE(mappings.claim(live, &page));
  EXPECT_FALSE(mappings.claim(MapHandle(0xffffffff), &page));
}

}  // namespace
}  // namespace xblk::xen
