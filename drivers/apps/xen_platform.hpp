// Real Xen in real time: the frontend's process runs in a guest, the backend's in the control domain.
#pragma once

#include "drivers/env/real/real_env.hpp"
#include "drivers/keystore/client.hpp"
#include "drivers/platform/concepts.hpp"
#include "drivers/xen/back.hpp"
#include "drivers/xen/front.hpp"

namespace xblk::apps {

struct XenPlatform {
  using Env = env::RealEnv;
  using Front = xen::XenFront;
  using Back = xen::XenBack;
  using Keys = keystore::Client;
};
static_assert(platform::Platform<XenPlatform>);

}  // namespace xblk::apps
