#include "agent/toggle/vbd.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "agent/host/fake/fake_host.hpp"
#include "agent/toggle/fake/fake_keys.hpp"

namespace xblk::toggle {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pair;

const std::string kBack = "/local/domain/0/backend/xblk/3/51712";
const std::string kFront = "/local/domain/3/device/vbd/51712";

class VbdTest : public testing::Test {
 protected:
  host::FakeHost host_{[](const host::ProcessSpec&) -> Result<host::FakeLife> { return host::FakeLife{}; }};
  FakeKeys keys_;
  Vbd vbd_{DomId(3)};
};

TEST_F(VbdTest, AttachWritesWhatLibxlWrites) {
  ASSERT_TRUE(attach(keys_, {.vbd = vbd_, .policies = {.front = {{"queues", "2"}}, .back = {{"data-path", "copy"}}}}));
  EXPECT_THAT(keys_.read_tree(kBack).value(),
              ElementsAre(Pair("dev", "xvda"), Pair("frontend", kFront), Pair("frontend-id", "3"), Pair("mode", "w"),
                          Pair("online", "1"), Pair("params", "null:1GiB"), Pair("state", "1"), Pair("type", "xblk"),
                          Pair("xblk-policy/data-path", "copy")));
  EXPECT_THAT(keys_.read_tree(kFront).value(),
              ElementsAre(Pair("backend", kBack), Pair("backend-id", "0"), Pair("state", "1"),
                          Pair("virtual-device", "51712"), Pair("xblk-policy/queues", "2")));
}

TEST_F(VbdTest, EachEndOwnsItsDirectoryAndMayReadTheOther) {
  ASSERT_TRUE(attach(keys_, {.vbd = vbd_}));
  const auto& [back_owner, back_peers] = keys_.permissions.at(kBack);
  EXPECT_EQ(back_owner, kDom0);
  EXPECT_THAT(back_peers, ElementsAre(KeyPermission{DomId(3), true, false}));
  const auto& [front_owner, front_peers] = keys_.permissions.at(kFront);
  EXPECT_EQ(front_owner, DomId(3));
  EXPECT_THAT(front_peers, ElementsAre(KeyPermission{kDom0, true, false}));
}

TEST_F(VbdTest, AttachTwiceOrWithABadPolicyChangesNothing) {
  EXPECT_FALSE(attach(keys_, {.vbd = vbd_, .policies = {.front = {{"data-path", "copy"}}, .back = {}}}));
  EXPECT_TRUE(keys_.keys.empty());
  ASSERT_TRUE(attach(keys_, {.vbd = vbd_}));
  const auto before = keys_.keys;
  EXPECT_EQ(attach(keys_, {.vbd = vbd_, .params = "ram:1MiB"}).error().code, EEXIST);
  EXPECT_EQ(keys_.keys, before);
}

TEST_F(VbdTest, DetachWaitsForTheBackend) {
  ASSERT_TRUE(attach(keys_, {.vbd = vbd_}));
  std::string online_when_asked;
  keys_.drivers = [&](FakeKeys& keys) {
    if (keys.read(kBack + "/state").value_or("") == "5") {
      online_when_asked = keys.keys[kBack + "/online"];
      keys.keys[kBack + "/state"] = "6";
    }
  };
  EXPECT_TRUE(detach(keys_, host_, vbd_, seconds(5)));
  EXPECT_EQ(online_when_asked, "0");
  EXPECT_EQ(host_.now(), Instant(0));
  EXPECT_FALSE(keys_.keys.contains(kBack + "/state"));
  EXPECT_FALSE(keys_.keys.contains(kFront + "/state"));
}

TEST_F(VbdTest, ABackendThatDoesNotCloseIsRemovedByForce) {
  ASSERT_TRUE(attach(keys_, {.vbd = vbd_}));
  const auto status = detach(keys_, host_, vbd_, seconds(5));
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ETIMEDOUT);
  EXPECT_THAT(status.error().message, HasSubstr("removed by force"));
  EXPECT_EQ(host_.now(), Instant(0) + seconds(5));
  EXPECT_FALSE(keys_.keys.contains(kBack + "/state"));
}

TEST_F(VbdTest, DetachOfNothingIsNoError) {
  EXPECT_TRUE(detach(keys_, host_, vbd_, seconds(5)));
  EXPECT_EQ(host_.now(), Instant(0));
}

TEST_F(VbdTest, StopNowEndsTheWait) {
  ASSERT_TRUE(attach(keys_, {.vbd = vbd_}));
  host_.raise_at(Instant(0) + seconds(1), 2);
  host_.raise_at(Instant(0) + seconds(2), 2);
  EXPECT_EQ(detach(keys_, host_, vbd_, seconds(5)).error().code, EINTR);
  EXPECT_LT(host_.now(), Instant(0) + seconds(3));
}

}  // namespace
}  // namespace xblk::toggle
