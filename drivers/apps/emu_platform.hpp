// The emulated Xen in real time: guests are other processes, the host process is hypervisor and dom0.
#pragma once

#include "drivers/env/real/real_env.hpp"
#include "drivers/hypervisor/dom0.hpp"
#include "drivers/hypervisor/emu/emu_guest.hpp"
#include "drivers/keystore/client.hpp"
#include "drivers/platform/concepts.hpp"

namespace xblk::apps {

struct EmuPlatform {
  using Env = env::RealEnv;
  using Front = hypervisor::emu::EmuGuest;
  using Back = hypervisor::Dom0<Env>;
  using Keys = keystore::Client;
};
static_assert(platform::Platform<EmuPlatform>);

}  // namespace xblk::apps
