#include "agent/toggle/toggle.hpp"

#include <csignal>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>
#include <nlohmann/json.hpp>

#include "agent/host/fake/fake_host.hpp"
#include "agent/toggle/fake/fake_keys.hpp"
#include "agent/toggle/test_directory.hpp"

namespace xblk::toggle {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

const Vbd kVbd{DomId(3)};
const Policies kPersistentOff{.front = {{"persistent", "0"}, {"queues", "2"}}, .back = {{"persistent", "0"}}};

std::string front(const std::string& key) {
  return kVbd.frontend_directory() + "/" + key;
}
std::string back(const std::string& key) {
  return kVbd.backend_directory() + "/" + key;
}

// Drivers that reconnect as soon as the counter changes, and publish.
void reconnecting_drivers(FakeKeys& keys, std::string& seen) {
  const std::string counter = keys.read(front("xblk-policy/reconnect")).value_or("");
  if (counter == seen) return;
  seen = counter;
  keys.keys[front("xblk-negotiated/queues")] = keys.read(front("xblk-policy/queues")).value_or("1");
  keys.keys[back("xblk-negotiated/queues")] = keys.keys[front("xblk-negotiated/queues")];
}

class ToggleTest : public testing::Test {
 protected:
  ToggleTest() { EXPECT_TRUE(attach(keys_, {.vbd = kVbd})); }

  void connect() {
    keys_.keys[front("state")] = "4";
    keys_.keys[back("state")] = "4";
    keys_.keys[front("xblk-negotiated/queues")] = "1";
    keys_.keys[back("xblk-negotiated/queues")] = "1";
    keys_.drivers = [this](FakeKeys& keys) { reconnecting_drivers(keys, reconnects_seen_); };
  }
  Journal journal() { return Journal::create(state(), {"/emu/socket", 1}).value(); }
  [[nodiscard]] std::filesystem::path state() const { return directory_.path() / "state"; }

  TestDirectory directory_;
  host::FakeHost host_{[](const host::ProcessSpec&) -> Result<host::FakeLife> { return host::FakeLife{}; }};
  FakeKeys keys_;
  std::string reconnects_seen_;
};

TEST_F(ToggleTest, PlanNamesEveryWrite) {
  std::vector<std::string> lines;
  for (const KeyWrite& write : plan(kVbd, kPersistentOff)) lines.push_back(write.path + " = " + write.value);
  EXPECT_THAT(lines, ElementsAre(back("xblk-policy/persistent") + " = 0", front("xblk-policy/persistent") + " = 0",
                                 front("xblk-policy/queues") + " = 2"));
}

TEST_F(ToggleTest, AnUnconnectedFrontendTakesThePoliciesAtItsNextConnect) {
  Toggle toggle(keys_, host_, journal());
  ASSERT_TRUE(toggle.apply(kVbd, kPersistentOff));
  EXPECT_EQ(keys_.keys.at(front("xblk-policy/queues")), "2");
  EXPECT_EQ(keys_.keys.at(back("xblk-policy/persistent")), "0");
  EXPECT_FALSE(keys_.keys.contains(front("xblk-policy/reconnect")));
}

TEST_F(ToggleTest, AConnectedFrontendReconnectsAndOldResultsAreNotReadForNew) {
  connect();
  keys_.drivers = {};  // slow drivers: still connected as before
  Toggle toggle(keys_, host_, journal());
  ASSERT_TRUE(toggle.apply(kVbd, kPersistentOff));
  EXPECT_EQ(keys_.keys.at(front("xblk-policy/reconnect")), "1");
  const auto waited = toggle.wait_connected(kVbd, seconds(3));
  ASSERT_FALSE(waited) << "states alone still say connected";
  EXPECT_EQ(waited.error().code, ETIMEDOUT);
  EXPECT_THAT(waited.error().message, HasSubstr("is not connected"));
}

TEST_F(ToggleTest, WaitsForTheNewConnection) {
  connect();
  Toggle toggle(keys_, host_, journal());
  ASSERT_TRUE(toggle.apply(kVbd, kPersistentOff));
  ASSERT_TRUE(toggle.wait_connected(kVbd, seconds(3)));
  EXPECT_EQ(keys_.keys.at(back("xblk-negotiated/queues")), "2");
  ASSERT_TRUE(toggle.apply(kVbd, {.front = {{"queues", "4"}}, .back = {}}));
  EXPECT_EQ(keys_.keys.at(front("xblk-policy/reconnect")), "2");
}

TEST_F(ToggleTest, RestoreLeavesTheStoreAsItWas) {
  keys_.keys[front("xblk-policy/queues")] = "7";
  connect();
  auto before = keys_.keys;
  Toggle toggle(keys_, host_, journal());
  ASSERT_TRUE(toggle.apply(kVbd, kPersistentOff));
  ASSERT_TRUE(toggle.apply(kVbd, {.front = {{"queues", "4"}}, .back = {{"data-path", "copy"}}}));
  const auto restored = toggle.restore().value();
  EXPECT_THAT(restored.conflicts, IsEmpty());
  // The drivers reconnected with the old policies; what they published is theirs.
  EXPECT_EQ(keys_.keys.at(front("xblk-negotiated/queues")), "7");
  before[front("xblk-negotiated/queues")] = before[back("xblk-negotiated/queues")] = "7";
  EXPECT_EQ(keys_.keys, before);
  EXPECT_TRUE(std::filesystem::is_empty(state()));
}

TEST_F(ToggleTest, DestructionRestores) {
  const auto before = keys_.keys;
  {
    Toggle toggle(keys_, host_, journal());
    ASSERT_TRUE(toggle.apply(kVbd, kPersistentOff));
    EXPECT_NE(keys_.keys, before);
  }
  EXPECT_EQ(keys_.keys, before);
  EXPECT_TRUE(std::filesystem::is_empty(state()));
}

TEST_F(ToggleTest, AttachedVbdsEndWithIt) {
  const auto before = keys_.keys;
  const Vbd other{DomId(4)};
  {
    Toggle toggle(keys_, host_, journal());
    ASSERT_TRUE(toggle.attach({.vbd = other, .policies = {.front = {{"queues", "4"}}, .back = {}}}));
    ASSERT_TRUE(toggle.apply(other, kPersistentOff));
    // A vbd that was there before must not end with it.
    EXPECT_EQ(toggle.attach({.vbd = kVbd}).error().code, EEXIST);
  }
  EXPECT_EQ(keys_.keys.count(other.backend_directory() + "/state"), 0U);
  EXPECT_EQ(keys_.keys.at(back("state")), before.at(back("state")));
  EXPECT_TRUE(std::filesystem::is_empty(state()));
}

TEST_F(ToggleTest, WhatIsAlreadySoIsNotWritten) {
  keys_.keys[back("xblk-policy/persistent")] = "0";
  Toggle toggle(keys_, host_, journal());
  ASSERT_TRUE(toggle.apply(kVbd, kPersistentOff));
  EXPECT_EQ(toggle.restore().value().restored, 2U);
  EXPECT_EQ(keys_.keys.at(back("xblk-policy/persistent")), "0");
}

TEST_F(ToggleTest, FailuresChangeNothing) {
  const auto before = keys_.keys;
  Toggle toggle(keys_, host_, journal());
  EXPECT_EQ(toggle.apply(kVbd, {.front = {{"colour", "red"}}, .back = {}}).error().code, EINVAL);
  EXPECT_EQ(toggle.apply(Vbd{DomId(9)}, kPersistentOff).error().code, ENOENT);
  keys_.refused = front("xblk-policy/queues");
  EXPECT_EQ(toggle.apply(kVbd, kPersistentOff).error().code, EACCES);
  EXPECT_EQ(keys_.keys, before);
}

TEST_F(ToggleTest, AHostThatDiesLeavesTheJournal) {
  {
    Toggle toggle(keys_, host_, journal());
    ASSERT_TRUE(toggle.apply(kVbd, kPersistentOff));
    keys_.gone = true;
    EXPECT_FALSE(toggle.restore());
  }
  EXPECT_EQ(abandoned_journals(state()).value().size(), 1U);
}

// ---- SIGKILL at the two moments that matter ----

void save(const FakeKeys& keys, const std::filesystem::path& file) {
  std::ofstream(file) << nlohmann::json(keys.keys);
}

class KilledToggleTest : public ToggleTest {
 protected:
  // Runs apply() in a child that kills itself; what it committed is in `saved()`.
  void run_until_killed(const std::function<void()>& prepare) {
    save(keys_, saved());
    const pid_t child = ::fork();
    if (child == 0) {
      prepare();
      Toggle toggle(keys_, host_, journal());
      static_cast<void>(toggle.apply(kVbd, kPersistentOff));
      ::_exit(1);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
  }
  [[nodiscard]] std::filesystem::path saved() const { return directory_.path() / "keys.json"; }

  std::vector<RestoreReport> restore_all(FakeKeys& keys) {
    return restore_abandoned(state(), host_,
                             [&](const std::string&) -> Result<std::unique_ptr<KeyAccess>> {
                               auto copy = std::make_unique<FakeKeys>(keys);
                               copy->drivers = [&keys](FakeKeys& changed) { keys.keys = changed.keys; };
                               return copy;
                             })
        .value();
  }
  FakeKeys store_after_death() {
    FakeKeys keys;
    keys.keys = nlohmann::json::parse(std::ifstream(saved())).get<FakeKeys::Map>();
    return keys;
  }
};

TEST_F(KilledToggleTest, AfterTheJournalBeforeTheStore) {
  run_until_killed([this] { keys_.before_commit = [] { ::raise(SIGKILL); }; });
  FakeKeys store = store_after_death();
  const auto before = store.keys;
  const auto reports = restore_all(store);
  ASSERT_EQ(reports.size(), 1U);
  EXPECT_TRUE(reports[0].complete());
  EXPECT_EQ(reports[0].restored.unchanged, 3U);
  EXPECT_EQ(store.keys, before);
  EXPECT_TRUE(std::filesystem::is_empty(state()));
}

TEST_F(KilledToggleTest, AfterTheStore) {
  const auto before = keys_.keys;
  run_until_killed([this] {
    keys_.drivers = [this](FakeKeys& keys) {
      save(keys, saved());
      ::raise(SIGKILL);
    };
  });
  FakeKeys store = store_after_death();
  EXPECT_NE(store.keys, before);
  const auto reports = restore_all(store);
  ASSERT_EQ(reports.size(), 1U);
  EXPECT_EQ(reports[0].restored.restored, 3U);
  EXPECT_EQ(store.keys, before);
  EXPECT_THAT(restore_all(store), IsEmpty());
}

}  // namespace
}  // namespace xblk::toggle
