// What libxl does for one vbd, for the reference backend's class `xblk`: the two directories, their permissions, and
// the end of it.
#pragma once

#include <cstdint>
#include <string>

#include "agent/host/host.hpp"
#include "agent/toggle/key_access.hpp"
#include "drivers/blkif/policy.hpp"

namespace xblk::toggle {

// Names one vbd.
struct Vbd {
  DomId guest = {};
  std::uint32_t device = 51712;  // virtual-device: 202 << 8, xvda

  [[nodiscard]] std::string backend_directory() const;
  [[nodiscard]] std::string frontend_directory() const;
};

struct Policies {
  blkif::PolicyMap front = {};
  blkif::PolicyMap back = {};
};

struct VbdConfig {
  Vbd vbd = {};
  std::string params = "null:1GiB";  // kind of backing store and its size
  std::string name = "xvda";
  bool writable = true;
  // Written with the directories. A backend publishes its limits once before a frontend comes, so limits (queues,
  // ring pages, indirect segments) of a fresh vbd take effect only if they are there from the start.
  Policies policies = {};
};

// One transaction, as libxl. EEXIST when the vbd is there already.
Status attach(KeyAccess& keys, const VbdConfig& config);

// Asks the backend to close, waits, removes both directories. A backend that does not close in time has its directories
// removed all the same (libxl forces state 6); that is reported as ETIMEDOUT. No vbd is no error.
Status detach(KeyAccess& keys, host::Host& host, const Vbd& vbd, Nanos patience);

// EINVAL for an unknown name, a policy of another end or a bad value.
Status check(const Policies& policies);

}  // namespace xblk::toggle
