// A journal may be torn, or of somebody else: whatever its bytes, it is understood or refused in one line. What is
// understood restores exactly the keys that it names.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>

#include "agent/host/fake/fake_host.hpp"
#include "agent/toggle/fake/fake_keys.hpp"
#include "agent/toggle/restore.hpp"
#include "drivers/base/check.hpp"

namespace {

using namespace xblk;
using toggle::FakeKeys;
using toggle::KeyChange;

void put(FakeKeys& keys, const std::string& path, const std::optional<std::string>& value) {
  if (value) {
    keys.keys[path] = *value;
  } else {
    keys.keys.erase(path);
  }
}

// A store in which all changes were made, one after another, and one key of somebody else.
FakeKeys changed_store(const std::vector<KeyChange>& changes) {
  FakeKeys keys;
  for (const KeyChange& change : changes) put(keys, change.path, change.after);
  for (const KeyChange& change : changes) keys.keys[change.device + "/state"] = "4";
  keys.keys["//foreign"] = "1";
  return keys;
}

// Changes that follow one another, of keys that do not contain each other: their end is known.
bool is_plain(const std::vector<KeyChange>& changes) {
  std::map<std::string, std::optional<std::string>> now;
  for (const KeyChange& change : changes) {
    if (change.path.ends_with("/state") || change.path.starts_with("//foreign")) return false;
    const auto [known, first] = now.emplace(change.path, change.before);
    if (known->second != change.before) return false;
    known->second = change.after;
  }
  for (auto it = now.begin(); it != now.end(); ++it) {
    const std::string below = it->first + "/";
    const auto inside = [&](const auto& other) { return other.first.starts_with(below); };
    if (std::any_of(now.begin(), now.end(), inside)) return false;
    for (const KeyChange& change : changes) {
      if ((change.device + "/state").starts_with(below)) return false;
    }
  }
  return true;
}

void check_restored(const std::vector<KeyChange>& changes) {
  FakeKeys keys = changed_store(changes);
  host::FakeHost host([](const host::ProcessSpec&) -> Result<host::FakeLife> { return host::FakeLife{}; });
  const auto restored = toggle::restore(keys, host, {}, changes);
  XBLK_CHECK(restored.has_value(), "a store that answers can be restored");
  XBLK_CHECK(keys.keys.at("//foreign") == "1", "other keys are left alone");
  std::map<std::string, std::optional<std::string>> first;
  for (const KeyChange& change : changes) first.emplace(change.path, change.before);
  for (const auto& [path, before] : first) {
    const auto found = keys.keys.find(path);
    XBLK_CHECK((found == keys.keys.end()) == !before, "a key that was absent is absent");
    XBLK_CHECK(!before || found->second == *before, "a key has its first value");
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  const auto content = toggle::parse_journal(text, "fuzz.journal");
  if (!content) {
    XBLK_CHECK(content.error().message.starts_with("fuzz.journal:"), "an error names its file and line");
    XBLK_CHECK(content.error().message.find('\n') == std::string::npos, "an error is one line");
    return 0;
  }
  for (const KeyChange& change : content->changes) {
    XBLK_CHECK(change.path.starts_with(change.device + "/"), "a key is of its device");
  }
  for (const auto& file : content->created) XBLK_CHECK(file.path.is_absolute(), "a file can be found again");
  if (is_plain(content->changes)) check_restored(content->changes);
  return 0;
}
