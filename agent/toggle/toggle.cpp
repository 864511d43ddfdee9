#include "agent/toggle/toggle.hpp"

#include <charconv>
#include <utility>

#include <fmt/format.h>

#include "agent/toggle/waiting.hpp"
#include "drivers/blkif/keys.hpp"
#include "drivers/blkif/xenbus_state.hpp"

namespace xblk::toggle {
namespace {

using blkif::XenbusState;

XenbusState state_of(KeyAccess& keys, const std::string& directory) {
  const auto state = keys.read(directory + "/state");
  return state ? blkif::parse_xenbus_state(*state) : XenbusState::unknown;
}

// Any other value than the one there: drivers compare, they do not count.
std::string next_reconnect(const std::optional<std::string>& current) {
  std::uint64_t number = 0;
  if (current) std::from_chars(current->data(), current->data() + current->size(), number);
  return std::to_string(number + 1);
}

std::string results_directory(const std::string& directory) {
  return fmt::format("{}/{}", directory, blkif::keys::kNegotiatedDirectory);
}

bool connected(KeyAccess& keys, const std::string& directory) {
  return state_of(keys, directory) == XenbusState::connected &&
         keys.read(fmt::format("{}/{}", directory, blkif::keys::negotiated_key("queues"))).has_value();
}

std::string_view shown(KeyAccess& keys, const std::string& directory) {
  return blkif::to_string(state_of(keys, directory));
}

}  // namespace

std::vector<KeyWrite> plan(const Vbd& vbd, const Policies& policies) {
  std::vector<KeyWrite> writes;
  for (const auto& [name, value] : policies.back) {
    writes.push_back({fmt::format("{}/{}", vbd.backend_directory(), blkif::keys::policy_key(name)), value});
  }
  for (const auto& [name, value] : policies.front) {
    writes.push_back({fmt::format("{}/{}", vbd.frontend_directory(), blkif::keys::policy_key(name)), value});
  }
  return writes;
}

Toggle::Toggle(KeyAccess& keys, host::Host& host, Journal journal)
    : keys_(keys), host_(host), journal_(std::move(journal)) {}

Toggle::~Toggle() {
  if (!closed_) static_cast<void>(restore());
}

Result<std::vector<KeyChange>> Toggle::changes_for(const Vbd& vbd, const Policies& policies) {
  std::vector<KeyChange> changes;
  const auto add = [&](const std::string& device, const std::string& path, auto&& value_for) -> Status {
    auto before = read_optional(keys_, path);
    if (!before) return tl::unexpected(before.error());
    std::string after = value_for(*before);
    if (*before != after) changes.push_back({device, path, *std::move(before), std::move(after)});
    return {};
  };
  for (const KeyWrite& write : plan(vbd, policies)) {
    const bool of_backend = write.path.starts_with(vbd.backend_directory() + "/");
    const auto status = add(of_backend ? vbd.backend_directory() : vbd.frontend_directory(), write.path,
                            [&](const auto&) { return write.value; });
    if (!status) return tl::unexpected(status.error());
  }
  if (state_of(keys_, vbd.frontend_directory()) == XenbusState::connected) {
    const std::string path = fmt::format("{}/{}", vbd.frontend_directory(), blkif::keys::kPolicyReconnect);
    if (auto status = add(vbd.frontend_directory(), path, next_reconnect); !status)
      return tl::unexpected(status.error());
  }
  return changes;
}

Status Toggle::attach(const VbdConfig& config) {
  // Asked before it is journalled: restore must never detach a vbd that was there before us.
  const std::string backend = config.vbd.backend_directory();
  if (keys_.read(backend + "/state")) return fail(EEXIST, backend + " exists already; detach that vbd first");
  if (auto status = journal_.record_attach(config.vbd); !status) return status;
  if (auto status = toggle::attach(keys_, config); !status) return status;
  attached_.push_back(config.vbd);
  return {};
}

Status Toggle::create_file(const std::filesystem::path& path, Bytes size) {
  const auto created = toggle::create_file(path, size);
  if (!created) return tl::unexpected(created.error());
  if (auto status = journal_.record_created(*created); !status) {
    static_cast<void>(toggle::remove_created(*created));
    return status;
  }
  created_.push_back(*created);
  return {};
}

Status Toggle::apply(const Vbd& vbd, const Policies& policies) {
  if (auto status = check(policies); !status) return status;
  for (const std::string& directory : {vbd.backend_directory(), vbd.frontend_directory()}) {
    if (auto state = keys_.read(directory + "/state"); !state)
      return forward(state.error(), "no such vbd: " + directory);
  }
  auto changes = changes_for(vbd, policies);
  if (!changes) return tl::unexpected(changes.error());
  if (auto status = journal_.record(*changes); !status) return status;
  auto written = keys_.transaction([&]() -> Status {
    for (const KeyChange& change : *changes) {
      const auto current = read_optional(keys_, change.path);
      if (!current) return tl::unexpected(current.error());
      if (*current != change.before) {
        return fail(EBUSY, fmt::format("{} was changed by somebody else; is another xblk at work?", change.path));
      }
      if (auto status = keys_.write(change.path, *change.after); !status) return status;
    }
    for (const std::string& directory : {vbd.backend_directory(), vbd.frontend_directory()}) {
      if (auto status = keys_.remove(results_directory(directory)); !status) return status;
    }
    return {};
  });
  if (!written) return written;
  changes_.insert(changes_.end(), changes->begin(), changes->end());
  return {};
}

Status Toggle::wait_connected(const Vbd& vbd, Nanos patience) {
  const std::string back = vbd.backend_directory();
  const std::string front = vbd.frontend_directory();
  const auto status =
      wait_until(host_, host_.now() + patience, [&] { return connected(keys_, back) && connected(keys_, front); });
  if (status) return status;
  return forward(status.error(), fmt::format("{} is not connected (frontend {}, backend {})", front,
                                             shown(keys_, front), shown(keys_, back)));
}

Result<Restored> Toggle::restore() {
  auto restored = toggle::restore(keys_, host_, attached_, changes_);
  Restored files;
  remove_created(std::exchange(created_, {}), files);  // also when xenstore does not answer
  if (!restored) return restored;
  restored->removed = files.removed;
  restored->conflicts.insert(restored->conflicts.end(), files.conflicts.begin(), files.conflicts.end());
  closed_ = true;
  if (!restored->conflicts.empty()) return restored;  // the journal stays, as the record of it
  if (auto status = journal_.close(); !status) return tl::unexpected(status.error());
  return restored;
}

}  // namespace xblk::toggle
