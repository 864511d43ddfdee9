#pragma once

#include "agent/toggle/key_access.hpp"
#include "drivers/keystore/client.hpp"

namespace xblk::toggle {

// xenstore, as the control domain sees it.
class KeystoreAccess final : public KeyAccess {
 public:
  explicit KeystoreAccess(keystore::Client client) : client_(std::move(client)) {}

  Result<std::string> read(const std::string& path) override { return client_.read(path); }
  Status write(const std::string& path, const std::string& value) override { return client_.write(path, value); }
  Status remove(const std::string& path) override { return client_.remove(path); }
  Result<std::map<std::string, std::string>> read_tree(const std::string& path) override {
    return client_.read_tree(path);
  }
  Status set_permissions(const std::string& path, DomId owner, std::span<const KeyPermission> peers) override {
    return client_.set_permissions(path, owner, peers);
  }
  Status transaction(const std::function<Status()>& body) override {
    return client_.transaction([&](keystore::Client&) { return body(); });
  }

 private:
  keystore::Client client_;
};

}  // namespace xblk::toggle
