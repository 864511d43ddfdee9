#include "agent/toggle/vbd.hpp"

#include <utility>
#include <vector>

#include <fmt/format.h>

#include "agent/toggle/waiting.hpp"
#include "drivers/blkif/keys.hpp"
#include "drivers/blkif/xenbus_state.hpp"

namespace xblk::toggle {
namespace {

using blkif::XenbusState;
using KeyList = std::vector<std::pair<std::string, std::string>>;

std::string state_key(XenbusState state) {
  return std::string(blkif::xenbus_state_key(state));
}

void append_policies(KeyList& keys, const blkif::PolicyMap& policies) {
  for (const auto& [name, value] : policies) keys.emplace_back(blkif::keys::policy_key(name), value);
}

KeyList backend_keys(const VbdConfig& config) {
  KeyList keys{{"frontend", config.vbd.frontend_directory()},
               {"frontend-id", std::to_string(config.vbd.guest.value())},
               {"online", "1"},
               {"params", config.params},
               {"type", "xblk"},
               {"mode", config.writable ? "w" : "r"},
               {"dev", config.name}};
  append_policies(keys, config.policies.back);
  keys.emplace_back("state", state_key(XenbusState::initialising));
  return keys;
}

KeyList frontend_keys(const VbdConfig& config) {
  KeyList keys{{"backend", config.vbd.backend_directory()},
               {"backend-id", std::to_string(kDom0.value())},
               {"virtual-device", std::to_string(config.vbd.device)}};
  append_policies(keys, config.policies.front);
  keys.emplace_back("state", state_key(XenbusState::initialising));
  return keys;
}

// A key inherits the permissions of its directory, so the directory comes first.
Status write_directory(KeyAccess& access, const std::string& directory, DomId owner, DomId reader,
                       const KeyList& keys) {
  if (auto status = access.write(directory, ""); !status) return status;
  const KeyPermission peers[] = {{.domain = reader, .read = true, .write = false}};
  if (auto status = access.set_permissions(directory, owner, peers); !status) return status;
  for (const auto& [key, value] : keys) {
    if (auto status = access.write(directory + "/" + key, value); !status) return status;
  }
  return {};
}

bool closed(KeyAccess& keys, const Vbd& vbd) {
  const auto state = keys.read(vbd.backend_directory() + "/state");
  return !state || blkif::parse_xenbus_state(*state) == XenbusState::closed;
}

Status ask_to_close(KeyAccess& keys, const std::string& backend) {
  return keys.transaction([&]() -> Status {
    if (auto status = keys.write(backend + "/online", "0"); !status) return status;
    return keys.write(backend + "/state", state_key(XenbusState::closing));
  });
}

}  // namespace

std::string Vbd::backend_directory() const {
  return fmt::format("/local/domain/{}/backend/xblk/{}/{}", kDom0.value(), guest.value(), device);
}

std::string Vbd::frontend_directory() const {
  return fmt::format("/local/domain/{}/device/vbd/{}", guest.value(), device);
}

Status check(const Policies& policies) {
  if (auto front = blkif::parse_front_policy(policies.front); !front) return tl::unexpected(front.error());
  if (auto back = blkif::parse_back_policy(policies.back); !back) return tl::unexpected(back.error());
  return {};
}

Status attach(KeyAccess& keys, const VbdConfig& config) {
  if (auto status = check(config.policies); !status) return status;
  const Vbd& vbd = config.vbd;
  return keys.transaction([&]() -> Status {
    for (const std::string& directory : {vbd.backend_directory(), vbd.frontend_directory()}) {
      if (!keys.read(directory + "/state")) continue;
      return fail(EEXIST, fmt::format("{} exists already; detach that vbd first", directory));
    }
    auto status = write_directory(keys, vbd.frontend_directory(), vbd.guest, kDom0, frontend_keys(config));
    if (!status) return status;
    return write_directory(keys, vbd.backend_directory(), kDom0, vbd.guest, backend_keys(config));
  });
}

Status detach(KeyAccess& keys, host::Host& host, const Vbd& vbd, Nanos patience) {
  const std::string backend = vbd.backend_directory();
  Status outcome;
  if (!closed(keys, vbd)) {
    if (auto status = ask_to_close(keys, backend); !status) return status;
    outcome = wait_until(host, host.now() + patience, [&] { return closed(keys, vbd); });
  }
  auto removed = keys.transaction([&]() -> Status {
    if (auto status = keys.remove(backend); !status) return status;
    return keys.remove(vbd.frontend_directory());
  });
  if (!removed) return removed;
  if (outcome) return {};
  return forward(outcome.error(), fmt::format("{} did not close and was removed by force", backend));
}

}  // namespace xblk::toggle
