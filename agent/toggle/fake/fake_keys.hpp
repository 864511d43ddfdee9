// xenstore as a map, with a place to play the drivers that react to it, or to fail or die.
#pragma once

#include <cerrno>
#include <functional>
#include <map>
#include <string>

#include "agent/toggle/key_access.hpp"

namespace xblk::toggle {

class FakeKeys final : public KeyAccess {
 public:
  using Map = std::map<std::string, std::string>;

  Result<std::string> read(const std::string& path) override {
    if (gone) return fail(EIO, "xenstored does not answer");
    const auto it = keys.find(path);
    if (it == keys.end()) return fail(ENOENT, path + ": no such key");
    return it->second;
  }
  Status write(const std::string& path, const std::string& value) override {
    if (gone) return fail(EIO, "xenstored does not answer");
    if (path == refused) return fail(EACCES, path + ": permission denied");
    keys[path] = value;
    return changed();
  }
  Status remove(const std::string& path) override {
    if (gone) return fail(EIO, "xenstored does not answer");
    std::erase_if(keys, [&](const auto& key) { return key.first == path || key.first.starts_with(path + "/"); });
    return changed();
  }
  Result<Map> read_tree(const std::string& path) override {
    if (gone) return fail(EIO, "xenstored does not answer");
    Map tree;
    for (const auto& [key, value] : keys) {
      if (key.starts_with(path + "/") && !value.empty()) tree[key.substr(path.size() + 1)] = value;
    }
    return tree;
  }
  Status set_permissions(const std::string& path, DomId owner, std::span<const KeyPermission> peers) override {
    permissions[path] = {owner, {peers.begin(), peers.end()}};
    return {};
  }
  Status transaction(const std::function<Status()>& body) override {
    const Map before = keys;
    in_transaction_ = true;
    Status status = body();
    in_transaction_ = false;
    if (status && before_commit) before_commit();
    if (!status) {
      keys = before;
      return status;
    }
    return changed();
  }

  Map keys;
  std::map<std::string, std::pair<DomId, std::vector<KeyPermission>>> permissions;
  std::string refused;  // writes to this path fail
  bool gone = false;
  std::function<void()> before_commit = {};
  std::function<void(FakeKeys&)> drivers = {};  // after each change outside of a transaction, and each commit

 private:
  Status changed() {
    if (!drivers || in_transaction_ || reacting_) return {};
    reacting_ = true;
    drivers(*this);
    reacting_ = false;
    return {};
  }
  bool in_transaction_ = false;
  bool reacting_ = false;
};

}  // namespace xblk::toggle
