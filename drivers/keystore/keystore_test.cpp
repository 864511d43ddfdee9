// The same cases on the client of the real xenstored and on the key store of virtual time: drivers and tests may rely
// on exactly what both do.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "drivers/env/virtual/memory_store.hpp"
#include "drivers/hypervisor/xenstored/xenstored_testing.hpp"
#include "drivers/keystore/client.hpp"
#include "drivers/platform/concepts.hpp"

namespace xblk::keystore {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;
using ::testing::UnorderedElementsAre;

static_assert(platform::KeyStore<Client>);
static_assert(platform::KeyStore<env::MemoryKeys>);

// Two ends of one store: `keys` acts, `other` looks on.
class RealEnds {
 public:
  using Keys = Client;

  RealEnds() : service_(start(directory_.path())) {}
  Client& keys() { return keys_; }
  Client& other() { return other_; }

  // Events come by another process: wait for one, and tell that none is left by a round trip (the daemon sends what
  // has fired before it answers).
  static std::optional<WatchEvent> next(Client& client) {
    EXPECT_TRUE(client.alive());
    return client.poll_watch();
  }

 private:
  static std::unique_ptr<hypervisor::XenstoreService> start(const std::string& directory) {
    auto service = hypervisor::XenstoreService::start(hypervisor::testing::options_in(directory));
    EXPECT_TRUE(service) << service.error().message;
    return std::move(*service);
  }
  hypervisor::testing::TemporaryDirectory directory_;
  std::unique_ptr<hypervisor::XenstoreService> service_;
  Client keys_ = hypervisor::testing::connected(service_->socket_path());
  Client other_ = hypervisor::testing::connected(service_->socket_path());
};

class MemoryEnds {
 public:
  using Keys = env::MemoryKeys;

  Keys& keys() { return keys_; }
  Keys& other() { return other_; }
  static std::optional<WatchEvent> next(Keys& keys) { return keys.poll_watch(); }

 private:
  env::MemoryStore store_;
  Keys keys_{store_, kDom0};
  Keys other_{store_, kDom0};
};

template <class Ends>
class KeyStoreTest : public ::testing::Test {
 protected:
  using Keys = typename Ends::Keys;

  std::vector<WatchEvent> drain(Keys& keys) {
    std::vector<WatchEvent> events;
    while (auto event = Ends::next(keys)) events.push_back(*event);
    return events;
  }

  Ends ends_;
  Keys& keys_ = ends_.keys();
  Keys& other_ = ends_.other();
};

using Stores = ::testing::Types<RealEnds, MemoryEnds>;
TYPED_TEST_SUITE(KeyStoreTest, Stores);

TYPED_TEST(KeyStoreTest, WrittenValuesAreReadByTheOtherEnd) {
  ASSERT_TRUE(this->keys_.write("/a/b/c", "1"));
  EXPECT_EQ(this->other_.read("/a/b/c").value(), "1");
  EXPECT_EQ(this->other_.read("/a/b").value(), "");  // an implied parent
  ASSERT_TRUE(this->keys_.write("/a/b/c", std::string("\0bin\n", 5)));
  EXPECT_EQ(this->other_.read("/a/b/c").value(), std::string("\0bin\n", 5));
}

TYPED_TEST(KeyStoreTest, AbsentKeysAreEnoentInOneLineWithThePath) {
  const auto absent = this->keys_.read("/no/such");
  ASSERT_FALSE(absent);
  EXPECT_EQ(absent.error().code, ENOENT);
  EXPECT_THAT(absent.error().message, ::testing::HasSubstr("/no/such"));
  EXPECT_THAT(absent.error().message, ::testing::Not(::testing::HasSubstr("\n")));
  EXPECT_EQ(this->keys_.list("/no/such").error().code, ENOENT);
  EXPECT_EQ(this->keys_.read_tree("/no/such").error().code, ENOENT);
}

TYPED_TEST(KeyStoreTest, BadPathsAreEinval) {
  for (const char* path : {"/a b", "/a//b", "/a/", "/a.b", "/ä"})
    EXPECT_EQ(this->keys_.write(path, "1").error().code, EINVAL) << path;
}

TYPED_TEST(KeyStoreTest, RemoveTakesEverythingBelowAndIsIdempotent) {
  ASSERT_TRUE(this->keys_.write("/a/b/c", "1"));
  ASSERT_TRUE(this->keys_.write("/a/bc", "2"));  // a neighbour by name, not below
  EXPECT_TRUE(this->keys_.remove("/a/b"));
  EXPECT_TRUE(this->keys_.remove("/a/b"));
  EXPECT_TRUE(this->keys_.remove("/never/was"));
  EXPECT_EQ(this->keys_.read("/a/b/c").error().code, ENOENT);
  EXPECT_EQ(this->keys_.read("/a/bc").value(), "2");
}

TYPED_TEST(KeyStoreTest, ListNamesTheChildrenOnly) {
  ASSERT_TRUE(this->keys_.write("/a/x/deep", "1"));
  ASSERT_TRUE(this->keys_.write("/a/y", "1"));
  ASSERT_TRUE(this->keys_.make_directory("/a/z"));
  ASSERT_TRUE(this->keys_.make_directory("/a/y"));
  EXPECT_THAT(this->other_.list("/a").value(), UnorderedElementsAre("x", "y", "z"));
  EXPECT_THAT(this->other_.list("/a/z").value(), IsEmpty());
  EXPECT_EQ(this->other_.read("/a/y").value(), "1");  // make_directory keeps what is there
}

TYPED_TEST(KeyStoreTest, ReadTreeGivesRelativeKeys) {
  ASSERT_TRUE(this->keys_.write("/a/state", "4"));
  ASSERT_TRUE(this->keys_.write("/a/queue-0/ring-ref", "8"));
  ASSERT_TRUE(this->keys_.write("/a/queue-1", "both"));
  ASSERT_TRUE(this->keys_.write("/a/queue-1/ring-ref", "9"));
  ASSERT_TRUE(this->keys_.make_directory("/a/empty"));
  EXPECT_THAT(this->other_.read_tree("/a").value(),
              UnorderedElementsAre(Pair("state", "4"), Pair("queue-0/ring-ref", "8"), Pair("queue-1", "both"),
                                   Pair("queue-1/ring-ref", "9"), Pair("empty", "")));
  EXPECT_THAT(this->other_.read_tree("/a/empty").value(), IsEmpty());
  EXPECT_EQ(this->other_.read_tree("/").value().at("a/state"), "4");
}

TYPED_TEST(KeyStoreTest, WatchFiresAtRegistrationAndForThePathAndBelow) {
  ASSERT_TRUE(this->other_.watch("/a/b", "t"));
  EXPECT_THAT(this->drain(this->other_), ElementsAre(WatchEvent{"/a/b", "t"}));
  ASSERT_TRUE(this->keys_.write("/a/b", "1"));
  ASSERT_TRUE(this->keys_.write("/a/b/c", "1"));
  ASSERT_TRUE(this->keys_.write("/a/bc", "1"));
  ASSERT_TRUE(this->keys_.remove("/a/b/c"));
  EXPECT_THAT(this->drain(this->other_),
              ElementsAre(WatchEvent{"/a/b", "t"}, WatchEvent{"/a/b/c", "t"}, WatchEvent{"/a/b/c", "t"}));
}

TYPED_TEST(KeyStoreTest, WatchSeesItsNodeGoWithAParent) {
  ASSERT_TRUE(this->keys_.write("/a/b/c", "1"));
  ASSERT_TRUE(this->other_.watch("/a/b/c", "t"));
  this->drain(this->other_);
  ASSERT_TRUE(this->keys_.remove("/a"));
  EXPECT_THAT(this->drain(this->other_), ElementsAre(WatchEvent{"/a/b/c", "t"}));
}

TYPED_TEST(KeyStoreTest, OwnWritesFireOwnWatches) {
  ASSERT_TRUE(this->keys_.watch("/a", "t"));
  this->drain(this->keys_);
  ASSERT_TRUE(this->keys_.write("/a/b", "1"));
  EXPECT_THAT(this->drain(this->keys_), ElementsAre(WatchEvent{"/a/b", "t"}));
}

TYPED_TEST(KeyStoreTest, WatchOfTheRootSeesEverything) {
  ASSERT_TRUE(this->other_.watch("/", "t"));
  this->drain(this->other_);
  ASSERT_TRUE(this->keys_.write("/a/b", "1"));
  EXPECT_THAT(this->drain(this->other_), ElementsAre(WatchEvent{"/a/b", "t"}));
}

TYPED_TEST(KeyStoreTest, UnwatchEndsEventsAndDropsQueuedOnes) {
  ASSERT_TRUE(this->other_.watch("/a", "t"));
  ASSERT_TRUE(this->other_.watch("/a", "kept"));
  this->drain(this->other_);
  ASSERT_TRUE(this->keys_.write("/a/b", "1"));
  ASSERT_TRUE(this->other_.unwatch("/a", "t"));
  ASSERT_TRUE(this->keys_.write("/a/c", "1"));
  EXPECT_THAT(this->drain(this->other_), ElementsAre(WatchEvent{"/a/b", "kept"}, WatchEvent{"/a/c", "kept"}));
  EXPECT_EQ(this->other_.unwatch("/a", "t").error().code, ENOENT);
}

TYPED_TEST(KeyStoreTest, TheSameWatchTwiceIsEexist) {
  ASSERT_TRUE(this->keys_.watch("/a", "t"));
  EXPECT_EQ(this->keys_.watch("/a", "t").error().code, EEXIST);
  EXPECT_TRUE(this->keys_.watch("/a", "u"));
}

TYPED_TEST(KeyStoreTest, TransactionIsVisibleWhenItIsDone) {
  ASSERT_TRUE(this->keys_.write("/a", "1"));
  ASSERT_TRUE(this->other_.watch("/a", "t"));
  this->drain(this->other_);
  ASSERT_TRUE(this->keys_.transaction([](auto& keys) -> Status {
    EXPECT_TRUE(keys.write("/a/x", "1"));
    EXPECT_EQ(keys.read("/a/x").value(), "1");
    return keys.write("/a/y", "2");
  }));
  EXPECT_EQ(this->other_.read("/a/y").value(), "2");
  EXPECT_THAT(this->drain(this->other_), UnorderedElementsAre(WatchEvent{"/a/x", "t"}, WatchEvent{"/a/y", "t"}));
}

TYPED_TEST(KeyStoreTest, FailedTransactionLeavesNothing) {
  ASSERT_TRUE(this->keys_.write("/a", "old"));
  const Status done = this->keys_.transaction([](auto& keys) -> Status {
    EXPECT_TRUE(keys.write("/a", "new"));
    EXPECT_TRUE(keys.remove("/a"));
    return fail(EIO, "stop");
  });
  EXPECT_EQ(done.error().code, EIO);
  EXPECT_EQ(this->other_.read("/a").value(), "old");
  EXPECT_TRUE(this->keys_.transaction([](auto& keys) { return keys.write("/a", "next"); }));
  EXPECT_EQ(this->other_.read("/a").value(), "next");
}

class ClientTest : public ::testing::Test {
 protected:
  RealEnds ends_;
  Client& keys_ = ends_.keys();
  Client& other_ = ends_.other();
};

TEST_F(ClientTest, ConflictRunsTheBodyAgain) {
  ASSERT_TRUE(keys_.write("/n", "1"));
  int runs = 0;
  ASSERT_TRUE(keys_.transaction([&](Client& keys) -> Status {
    const auto before = keys.read("/n");
    if (++runs < 4) {
      EXPECT_TRUE(other_.write("/n", std::to_string(runs * 10)));
    }
    return keys.write("/n", before.value() + "+");
  }));
  EXPECT_EQ(runs, 4);
  EXPECT_EQ(keys_.read("/n").value(), "30+");
}

TEST_F(ClientTest, EndlessConflictIsGivenUp) {
  int runs = 0;
  const Status done = keys_.transaction([&](Client& keys) -> Status {
    (void)keys.read("/n");
    EXPECT_TRUE(other_.write("/n", std::to_string(++runs)));
    return keys.write("/n", "mine");
  });
  EXPECT_EQ(done.error().code, EAGAIN);
  EXPECT_EQ(runs, Client::kMaxConflicts + 1);
  EXPECT_TRUE(keys_.transaction([](Client& keys) { return keys.write("/m", "1"); }));
}

TEST_F(ClientTest, PermissionsAreReadBackAsWritten) {
  ASSERT_TRUE(keys_.write("/local/domain/0/backend", ""));
  const Permission peer{DomId(7), true, false};
  ASSERT_TRUE(keys_.set_permissions("/local/domain/0/backend", kDom0, std::span(&peer, 1)));
  EXPECT_THAT(other_.get_permissions("/local/domain/0/backend").value(),
              ElementsAre(Permission{kDom0, false, false}, peer));
}

TEST_F(ClientTest, DescriptorBecomesReadableForAnEvent) {
  ASSERT_TRUE(keys_.watch("/a", "t"));
  EXPECT_EQ(hypervisor::testing::next_event(keys_), (WatchEvent{"/a", "t"}));
  ASSERT_TRUE(other_.write("/a", "1"));
  EXPECT_TRUE(hypervisor::testing::readable_in_time(keys_.fd()));
  EXPECT_EQ(hypervisor::testing::next_event(keys_), (WatchEvent{"/a", "t"}));
}

TEST(ClientConnect, UnreachableStoreIsOneLineWithThePath) {
  ::testing::internal::CaptureStderr();
  const auto client = Client::connect("/nowhere/socket");
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
  ASSERT_FALSE(client);
  EXPECT_EQ(client.error().code, ENOENT);
  EXPECT_THAT(client.error().message, ::testing::HasSubstr("/nowhere/socket"));
  EXPECT_THAT(client.error().message, ::testing::Not(::testing::HasSubstr("\n")));
  EXPECT_EQ(Client::connect(std::string(108, 'x')).error().code, ENAMETOOLONG);
}

TEST(ClientConnect, TheEnvironmentIsLeftAsItWas) {
  ASSERT_EQ(::setenv("XENSTORED_PATH", "/somewhere/else", 1), 0);
  EXPECT_FALSE(Client::connect("/nowhere/socket"));
  EXPECT_STREQ(::getenv("XENSTORED_PATH"), "/somewhere/else");
  EXPECT_THAT(Client::connect("").error().message, ::testing::HasSubstr("/somewhere/else"));
  ASSERT_EQ(::unsetenv("XENSTORED_PATH"), 0);
  EXPECT_FALSE(Client::connect("/nowhere/socket"));
  EXPECT_EQ(::getenv("XENSTORED_PATH"), nullptr);
}

}  // namespace
}  // namespace xblk::keystore
