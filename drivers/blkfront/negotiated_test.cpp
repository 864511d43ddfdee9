#include "drivers/blkfront/negotiated.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "drivers/blkfront/features.hpp"

namespace xblk::blkfront {
namespace {

class Agreement : public testing::Test {
 protected:
  Agreement() {
    offer_.persistent = true;
    offer_.queues.resize(2);
    offer_.ring_page_order = 1;
    backend_.sectors = Sectors(2048);
    backend_.persistent = true;
    backend_.limits.indirect_segments_max = 256;
  }
  Negotiated result() { return agree(policy_, offer_, backend_).negotiated; }

  blkif::FrontPolicy policy_;
  blkif::FrontendOffer offer_;
  blkif::BackendOffer backend_;
};

TEST_F(Agreement, PersistentGrantsTakeTwo) {
  EXPECT_TRUE(result().persistent);
  backend_.persistent = false;
  EXPECT_FALSE(result().persistent);
  backend_.persistent = true;
  offer_.persistent = false;
  EXPECT_FALSE(result().persistent);
}

TEST_F(Agreement, IndirectRequestsAreUsedForMoreSegmentsThanADirectOneHas) {
  EXPECT_EQ(result().indirect_segments_max, policy_.indirect_segments);
  backend_.limits.indirect_segments_max = 16;
  EXPECT_EQ(result().indirect_segments_max, 16u);
  backend_.limits.indirect_segments_max = 11;
  EXPECT_EQ(result().indirect_segments_max, 0u);
}

TEST_F(Agreement, AReadOnlyDeviceHasNoDiscardAndASecureOneNeedsAPlainOne) {
  backend_.discard = backend_.discard_secure = true;
  EXPECT_TRUE(result().discard_secure);
  backend_.info = blkif::kVdiskReadonly;
  EXPECT_FALSE(result().discard);
  EXPECT_FALSE(result().discard_secure);
}

TEST_F(Agreement, TheKeysNameEveryPolicyAndTheResultsOverrideTheWishes) {
  policy_.queues = 4;
  policy_.event_holdoff = 7;
  policy_.trusted = false;
  backend_.persistent = false;
  backend_.barrier = true;
  backend_.discard = true;
  const auto keys = negotiated_keys(policy_, result());
  for (const auto& key : blkif::policy_keys()) {
    if (!key.applies_to(blkif::PolicyEnd::front)) continue;
    EXPECT_TRUE(keys.contains(std::string(key.name))) << key.name;
  }
  EXPECT_EQ(keys.at("persistent"), "0");
  EXPECT_EQ(keys.at("queues"), "2");
  EXPECT_EQ(keys.at("ring-page-order"), "1");
  EXPECT_EQ(keys.at("indirect-segments"), "32");
  EXPECT_EQ(keys.at("event-holdoff"), "7");
  EXPECT_EQ(keys.at("trusted"), "0");
  EXPECT_EQ(keys.at("ordering"), "barrier");
  EXPECT_EQ(keys.at("discard"), "on");
  EXPECT_EQ(keys.at("protocol"), "x86_64-abi");
}

TEST_F(Agreement, AWithdrawnFeatureIsNoLongerNegotiated) {
  backend_.flush = backend_.barrier = backend_.discard = backend_.discard_secure = true;
  Features features;
  features.offer(result());
  EXPECT_EQ(features.left_of(result()), result());
  features.withdraw(Feature::flush);
  features.withdraw(Feature::discard_secure);
  const auto keys = negotiated_keys(policy_, features.left_of(result()));
  EXPECT_EQ(keys.at("ordering"), "barrier");
  EXPECT_EQ(keys.at("discard"), "on");
}

}  // namespace
}  // namespace xblk::blkfront
