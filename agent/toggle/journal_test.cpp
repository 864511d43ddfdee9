#include "agent/toggle/journal.hpp"

#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "agent/host/fake/fake_host.hpp"
#include "agent/toggle/fake/fake_keys.hpp"
#include "agent/toggle/restore.hpp"
#include "agent/toggle/test_directory.hpp"

namespace xblk::toggle {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

std::string all_bytes() {
  std::string bytes;
  for (int i = 0; i < 256; ++i) bytes += static_cast<char>(i);
  return bytes;
}

KeyChange change(std::optional<std::string> before, std::optional<std::string> after) {
  return {"/dev", "/dev/xblk-policy/queues", std::move(before), std::move(after)};
}

class JournalTest : public testing::Test {
 protected:
  Journal journal() { return Journal::create(directory_.path() / "state", {"/emu/socket", 1234}).value(); }
  // What a process that was killed leaves behind.
  std::filesystem::path abandoned(std::span<const KeyChange> changes) {
    Journal left = journal();
    EXPECT_TRUE(left.record(changes));
    return left.path();
  }
  std::filesystem::path abandoned_by(const std::string& run, std::span<const KeyChange> changes) {
    Journal left = Journal::create(directory_.path() / "state", {"/emu/socket", 1234, run}).value();
    EXPECT_TRUE(left.record(changes));
    return left.path();
  }
  Result<std::unique_ptr<KeyAccess>> no_host(const std::string& socket) { return fail(ECONNREFUSED, socket); }
  TestDirectory directory_;
  host::FakeHost host_{[](const host::ProcessSpec&) -> Result<host::FakeLife> { return host::FakeLife{}; }};
};

// A Connector to a store that outlives the connection.
class Borrowed final : public KeyAccess {
 public:
  explicit Borrowed(KeyAccess& keys) : keys_(keys) {}
  Result<std::string> read(const std::string& path) override { return keys_.read(path); }
  Status write(const std::string& path, const std::string& value) override { return keys_.write(path, value); }
  Status remove(const std::string& path) override { return keys_.remove(path); }
  Result<std::map<std::string, std::string>> read_tree(const std::string& path) override {
    return keys_.read_tree(path);
  }
  Status set_permissions(const std::string& path, DomId owner, std::span<const KeyPermission> peers) override {
    return keys_.set_permissions(path, owner, peers);
  }
  Status transaction(const std::function<Status()>& body) override { return keys_.transaction(body); }

 private:
  KeyAccess& keys_;
};

Connector to(FakeKeys& keys) {
  return [&](const std::string&) -> Result<std::unique_ptr<KeyAccess>> { return std::make_unique<Borrowed>(keys); };
}

TEST_F(JournalTest, KeepsEveryByteOfAValue) {
  const KeyChange changes[] = {change(all_bytes(), std::nullopt), change(std::nullopt, ""), change("\n\"{", "1")};
  const auto content = read_journal(abandoned(changes)).value();
  EXPECT_THAT(content.changes, ElementsAre(changes[0], changes[1], changes[2]));
  EXPECT_EQ(content.xenstore, "/emu/socket");
  EXPECT_EQ(content.unix_time_seconds, 1234);
  EXPECT_FALSE(content.truncated);
}

TEST_F(JournalTest, IsOnDiskWhenRecordReturns) {
  Journal open = journal();
  const KeyChange changes[] = {change("1", "2")};
  ASSERT_TRUE(open.record(changes));
  EXPECT_EQ(read_journal(open.path()).value().changes.size(), 1U);
}

TEST_F(JournalTest, ALockedJournalBelongsToARunningProcess) {
  const auto state = directory_.path() / "state";
  EXPECT_THAT(abandoned_journals(state).value(), IsEmpty());
  {
    const Journal running = journal();
    EXPECT_THAT(abandoned_journals(state).value(), IsEmpty());
  }
  EXPECT_EQ(abandoned_journals(state).value().size(), 1U);
}

TEST_F(JournalTest, TwoAtTheSameTimeHaveTwoFiles) {
  const Journal one = journal();
  const Journal two = journal();
  EXPECT_NE(one.path(), two.path());
}

TEST_F(JournalTest, CloseRemovesTheFile) {
  Journal done = journal();
  ASSERT_TRUE(done.close());
  EXPECT_FALSE(std::filesystem::exists(done.path()));
}

TEST_F(JournalTest, UnwritableDirectoryIsOneClearLine) {
  std::ofstream(directory_.path() / "file") << "x";
  const auto result = Journal::create(directory_.path() / "file" / "state", {"", 0});
  ASSERT_FALSE(result);
  EXPECT_THAT(result.error().message, HasSubstr((directory_.path() / "file").string()));
}

TEST_F(JournalTest, TruncatedLastLineWasNeverAppliedAndIsTolerated) {
  const KeyChange changes[] = {change("1", "2"), change("2", "3")};
  const auto file = abandoned(changes);
  const auto whole = std::filesystem::file_size(file);
  for (std::uintmax_t cut = 1; cut < 20; ++cut) {
    std::filesystem::resize_file(file, whole - cut);
    const auto content = read_journal(file).value();
    EXPECT_TRUE(content.truncated);
    EXPECT_EQ(content.changes.size(), 1U);
  }
}

TEST_F(JournalTest, OtherDamageRestoresNothing) {
  const KeyChange changes[] = {change("1", "2")};
  const auto file = abandoned(changes);
  std::ofstream(file, std::ios::app) << "{\"device\":\"/dev\",\"path\":\"/etc\",\"before\":null,\"after\":null}\n";
  FakeKeys keys;
  keys.keys = {{"/dev/state", "4"}, {"/dev/xblk-policy/queues", "2"}};
  const auto reports = restore_abandoned(directory_.path() / "state", host_, to(keys)).value();
  ASSERT_EQ(reports.size(), 1U);
  EXPECT_THAT(reports[0].unrestorable, HasSubstr(file.string() + ":3: not a line of an xblk journal"));
  EXPECT_EQ(keys.keys.at("/dev/xblk-policy/queues"), "2");
  EXPECT_TRUE(std::filesystem::exists(file));
}

TEST_F(JournalTest, RestoresBackwardsVerifiesAndIsIdempotent) {
  const KeyChange changes[] = {change(std::nullopt, "1"), change("1", "2"), change("2", "3")};
  FakeKeys keys;
  keys.keys = {{"/dev/state", "4"}, {"/dev/xblk-policy/queues", "3"}};
  const auto first = restore(keys, host_, {}, changes).value();
  EXPECT_EQ(first.restored, 3U);
  EXPECT_FALSE(keys.keys.contains("/dev/xblk-policy/queues"));
  const auto again = restore(keys, host_, {}, changes).value();
  EXPECT_EQ(again.restored, 0U);
  EXPECT_FALSE(keys.keys.contains("/dev/xblk-policy/queues"));
}

TEST_F(JournalTest, AForeignChangeIsLeftAlone) {
  const KeyChange changes[] = {change("1", "2")};
  abandoned(changes);
  FakeKeys keys;
  keys.keys = {{"/dev/state", "4"}, {"/dev/xblk-policy/queues", "7"}};
  const auto reports = restore_abandoned(directory_.path() / "state", host_, to(keys)).value();
  ASSERT_EQ(reports.size(), 1U);
  EXPECT_FALSE(reports[0].complete());
  EXPECT_THAT(reports[0].restored.conflicts, ElementsAre(HasSubstr("is '7', neither '1' as before nor '2' as set")));
  EXPECT_EQ(keys.keys.at("/dev/xblk-policy/queues"), "7");
  EXPECT_TRUE(std::filesystem::exists(reports[0].journal));
}

TEST_F(JournalTest, ADetachedVbdGetsNoGhost) {
  const KeyChange changes[] = {change("1", "2")};
  FakeKeys keys;
  EXPECT_EQ(restore(keys, host_, {}, changes).value().device_gone, 1U);
  EXPECT_TRUE(keys.keys.empty());
}

TEST_F(JournalTest, AHostThatIsGoneIsReportedAndTheJournalKept) {
  const KeyChange changes[] = {change("1", "2")};
  const auto file = abandoned(changes);
  const auto reports =
      restore_abandoned(directory_.path() / "state", host_, [this](const std::string& s) { return no_host(s); });
  ASSERT_TRUE(reports);
  EXPECT_THAT((*reports)[0].unrestorable, HasSubstr("its xenstore does not answer (/emu/socket)"));
  EXPECT_TRUE(std::filesystem::exists(file));
  FakeKeys dead;
  dead.gone = true;
  EXPECT_FALSE(restore_abandoned(directory_.path() / "state", host_, to(dead)).value()[0].complete());
}

TEST_F(JournalTest, ARefusedWriteRestoresNothingHalf) {
  const KeyChange changes[] = {{"/dev", "/dev/a", "1", "2"}, {"/dev", "/dev/b", "1", "2"}};
  FakeKeys keys;
  keys.keys = {{"/dev/state", "4"}, {"/dev/a", "2"}, {"/dev/b", "2"}};
  keys.refused = "/dev/a";  // restored last
  EXPECT_FALSE(restore(keys, host_, {}, changes));
  EXPECT_EQ(keys.keys.at("/dev/b"), "2");
}

TEST_F(JournalTest, AnAttachedVbdIsDetached) {
  const Vbd vbd{DomId(3)};
  FakeKeys keys;
  {
    Journal left = journal();
    ASSERT_TRUE(left.record_attach(vbd));
    EXPECT_EQ(read_journal(left.path()).value().attached.at(0).guest, DomId(3));
    ASSERT_TRUE(attach(keys, {.vbd = vbd}));
  }
  const auto reports = restore_abandoned(directory_.path() / "state", host_, to(keys)).value();
  ASSERT_EQ(reports.size(), 1U);
  EXPECT_TRUE(reports[0].complete());
  EXPECT_EQ(reports[0].restored.detached, 1U);
  EXPECT_EQ(reports[0].restored.forced.size(), 1U) << "no backend answered";
  EXPECT_FALSE(keys.keys.contains(vbd.backend_directory() + "/state"));
  EXPECT_THAT(abandoned_journals(directory_.path() / "state").value(), IsEmpty());
}

TEST_F(JournalTest, RestoreAllEndsWithAnEmptyDirectory) {
  const KeyChange first[] = {change("1", "2")};
  const KeyChange second[] = {change("2", "3")};
  abandoned(first);
  abandoned(second);
  FakeKeys keys;
  keys.keys = {{"/dev/state", "4"}, {"/dev/xblk-policy/queues", "3"}};
  const auto reports = restore_abandoned(directory_.path() / "state", host_, to(keys)).value();
  EXPECT_EQ(reports.size(), 2U);
  EXPECT_EQ(keys.keys.at("/dev/xblk-policy/queues"), "1");
  EXPECT_THAT(abandoned_journals(directory_.path() / "state").value(), IsEmpty());
}

TEST_F(JournalTest, OneRunIsRestoredAndNoOther) {
  FakeKeys keys;
  keys.keys = {{"/dev/state", "4"}, {"/dev/xblk-policy/queues", "8"}};
  const KeyChange changes[] = {change("2", "8")};
  const auto foreign = abandoned_by("/runs/b", changes);
  const auto nameless = abandoned(changes);
  const auto connect = [&](const std::string&) -> Result<std::unique_ptr<KeyAccess>> {
    return std::unique_ptr<KeyAccess>(std::make_unique<Borrowed>(keys));
  };
  EXPECT_THAT(restore_abandoned(directory_.path() / "state", host_, connect, "/runs/a").value(), IsEmpty());
  EXPECT_EQ(keys.keys.at("/dev/xblk-policy/queues"), "8");
  const auto own = abandoned_by("/runs/a", changes);
  const auto reports = restore_abandoned(directory_.path() / "state", host_, connect, "/runs/a").value();
  ASSERT_EQ(reports.size(), 1U);
  EXPECT_EQ(reports[0].journal, own);
  EXPECT_EQ(keys.keys.at("/dev/xblk-policy/queues"), "2");
  EXPECT_TRUE(std::filesystem::exists(foreign) && std::filesystem::exists(nameless));
}

}  // namespace
}  // namespace xblk::toggle
