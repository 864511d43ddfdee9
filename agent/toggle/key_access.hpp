// The few operations of xenstore that toggling needs: real (keystore_access.hpp) or a map in a test (fake/).
#pragma once

#include <cerrno>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>

#include "drivers/base/key_types.hpp"
#include "drivers/base/result.hpp"
#include "drivers/base/units.hpp"

namespace xblk::toggle {

class KeyAccess {
 public:
  virtual ~KeyAccess() = default;

  virtual Result<std::string> read(const std::string& path) = 0;  // ENOENT when absent
  virtual Status write(const std::string& path, const std::string& value) = 0;
  virtual Status remove(const std::string& path) = 0;  // with everything below; absent is no error
  virtual Result<std::map<std::string, std::string>> read_tree(const std::string& path) = 0;
  virtual Status set_permissions(const std::string& path, DomId owner, std::span<const KeyPermission> peers) = 0;

  // All or nothing. `body` may run again when somebody else wrote at the same time; its error aborts.
  virtual Status transaction(const std::function<Status()>& body) = 0;
};

// nullopt where the key is absent.
inline Result<std::optional<std::string>> read_optional(KeyAccess& keys, const std::string& path) {
  auto value = keys.read(path);
  if (value) return std::optional<std::string>(*std::move(value));
  if (value.error().code == ENOENT) return std::optional<std::string>();
  return tl::unexpected(value.error());
}

}  // namespace xblk::toggle
