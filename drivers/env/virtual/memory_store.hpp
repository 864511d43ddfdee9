// MemoryStore: the key store of virtual time. One tree in this process; each end (a guest, the control domain) has a
// MemoryKeys on it with the interface of keystore::Client.
//
// Like xenstore: implied parents, relative paths below /local/domain/<id>, watches that fire at registration and at
// each change below, commits that become visible at once. Unlike it: no conflicts (one thread), permissions are not
// enforced.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "drivers/base/key_types.hpp"
#include "drivers/base/result.hpp"
#include "drivers/base/units.hpp"

namespace xblk::env {

class MemoryKeys;

class MemoryStore {
 public:
  MemoryStore() = default;
  MemoryStore(const MemoryStore&) = delete;
  MemoryStore& operator=(const MemoryStore&) = delete;

 private:
  friend class MemoryKeys;
  using Tree = std::map<std::string, std::string>;  // absolute path -> value; every parent is present

  struct Watch {
    MemoryKeys* owner;
    std::string path;   // absolute
    std::string given;  // as the owner wrote it
    std::string token;
  };
  // Watches are told after the change, or after the commit when a transaction runs. `exact`: removed with a parent.
  struct Change {
    std::string path;
    bool exact;
  };

  void put(const std::string& path, const std::string& value);
  void erase(const std::string& path);
  void changed(Change change);
  void tell_watches(const Change& change);

  Tree tree_{{"/", ""}};
  std::vector<Watch> watches_;
  std::optional<Tree> before_transaction_;
  std::vector<Change> uncommitted_;
};

class MemoryKeys {
 public:
  MemoryKeys(MemoryStore& store, DomId domain);
  ~MemoryKeys();
  MemoryKeys(const MemoryKeys&) = delete;
  MemoryKeys& operator=(const MemoryKeys&) = delete;

  Result<std::string> read(const std::string& path);
  Status write(const std::string& path, const std::string& value);
  Status remove(const std::string& path);
  Result<std::vector<std::string>> list(const std::string& path);
  Status make_directory(const std::string& path);
  Result<std::map<std::string, std::string>> read_tree(const std::string& path);
  Status set_permissions(const std::string& path, DomId owner, std::span<const KeyPermission> peers);
  Status watch(const std::string& path, const std::string& token);
  Status unwatch(const std::string& path, const std::string& token);
  std::optional<WatchEvent> poll_watch();
  Status transaction(const std::function<Status(MemoryKeys&)>& body);

 private:
  friend class MemoryStore;
  Result<std::string> absolute(const char* call, const std::string& path) const;

  MemoryStore& store_;
  std::string home_;
  std::deque<WatchEvent> events_;
};

}  // namespace xblk::env
