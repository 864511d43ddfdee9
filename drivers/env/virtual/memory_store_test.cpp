#include "drivers/env/virtual/memory_store.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "drivers/platform/concepts.hpp"

namespace xblk::env {
namespace {

using testing::ElementsAre;

static_assert(platform::KeyStore<MemoryKeys>);

class MemoryStoreTest : public testing::Test {
 protected:
  std::vector<WatchEvent> drain(MemoryKeys& keys) {
    std::vector<WatchEvent> events;
    while (auto event = keys.poll_watch()) events.push_back(*event);
    return events;
  }

  MemoryStore store_;
  MemoryKeys dom0_{store_, kDom0};
  MemoryKeys guest_{store_, DomId(7)};
};

TEST_F(MemoryStoreTest, RelativePathsAreBelowTheDomain) {
  ASSERT_TRUE(guest_.write("device/vbd/768/state", "1"));
  EXPECT_EQ(dom0_.read("/local/domain/7/device/vbd/768/state").value(), "1");
  EXPECT_EQ(dom0_.read("device/vbd/768/state").error().code, ENOENT);
}

TEST_F(MemoryStoreTest, WatchOfOneEndSeesWritesOfTheOther) {
  ASSERT_TRUE(guest_.watch("device", "d"));
  ASSERT_TRUE(dom0_.watch("/local/domain/7", "front"));
  drain(guest_);
  drain(dom0_);
  ASSERT_TRUE(dom0_.write("/local/domain/7/device/x", "1"));
  EXPECT_THAT(drain(guest_), ElementsAre(WatchEvent{"device/x", "d"}));
  EXPECT_THAT(drain(dom0_), ElementsAre(WatchEvent{"/local/domain/7/device/x", "front"}));
}

TEST_F(MemoryStoreTest, EventsOfATransactionComeAtItsCommit) {
  ASSERT_TRUE(guest_.watch("/a", "t"));
  drain(guest_);
  ASSERT_TRUE(dom0_.transaction([&](MemoryKeys& keys) -> Status {
    Status written = keys.write("/a/b", "1");
    EXPECT_THAT(drain(guest_), ElementsAre());
    return written;
  }));
  EXPECT_THAT(drain(guest_), ElementsAre(WatchEvent{"/a/b", "t"}));
}

TEST_F(MemoryStoreTest, FailedTransactionChangesAndTellsNothing) {
  ASSERT_TRUE(dom0_.write("/a/kept", "old"));
  ASSERT_TRUE(guest_.watch("/a", "t"));
  drain(guest_);
  const Status done = dom0_.transaction([](MemoryKeys& keys) -> Status {
    (void)keys.write("/a/kept", "new");
    (void)keys.write("/b", "1");
    return fail(EIO, "stop");
  });
  EXPECT_EQ(done.error().code, EIO);
  EXPECT_EQ(dom0_.read("/a/kept").value(), "old");
  EXPECT_EQ(dom0_.read("/b").error().code, ENOENT);
  EXPECT_THAT(drain(guest_), ElementsAre());
}

TEST_F(MemoryStoreTest, AnEndThatGoesTakesItsWatchesAlong) {
  {
    MemoryKeys brief(store_, DomId(8));
    ASSERT_TRUE(brief.watch("/a", "t"));
  }
  EXPECT_TRUE(dom0_.write("/a", "1"));  // would touch the dead end's queue (seen by ASan)
  EXPECT_EQ(dom0_.read("/a").value(), "1");
}

}  // namespace
}  // namespace xblk::env
