// Where an experiment runs: a machine with guests, their disks' keys, and a way to start over. The state machine of a
// run sees only this, so its tests need no hypervisor; emu_rig.hpp is the real one.
#pragma once

#include <optional>
#include <string>

#include "agent/host/process.hpp"
#include "agent/run/layout.hpp"
#include "agent/toggle/key_access.hpp"
#include "drivers/base/result.hpp"
#include "drivers/blkif/policy.hpp"

namespace xblk::run {

// What cannot be changed while guests are attached.
struct RigSpec {
  unsigned guests = 1;
  blkif::PolicyMap host = blkif::to_keys(blkif::HostPolicy{});
  std::uint64_t guest_memory_mib = 1024;

  friend bool operator==(const RigSpec&, const RigSpec&) = default;
};

class Rig {
 public:
  virtual ~Rig() = default;

  // A fresh machine; any former one is stopped. The error is one line about what is in the way.
  virtual Status start(const RigSpec& spec) = 0;
  virtual void stop() = 0;

  // Valid from start() to stop().
  [[nodiscard]] virtual toggle::KeyAccess& keys() = 0;
  [[nodiscard]] virtual const HostLayout& layout() const = 0;
  // To be waited for beside the guests; nullptr when the machine is not a process.
  [[nodiscard]] virtual host::Process* process() = 0;
  // Why the machine is no longer usable; nullopt while it is.
  [[nodiscard]] virtual std::optional<std::string> failure() = 0;
};

}  // namespace xblk::run
