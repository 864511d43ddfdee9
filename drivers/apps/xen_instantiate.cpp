// Every member of both drivers, compiled for real Xen and linked into xen_test, so that the seam cannot drift away from
// it while the emulation is what runs.
#include "drivers/apps/xen_platform.hpp"
#include "drivers/blkback/device.hpp"
#include "drivers/blkback/manager.hpp"
#include "drivers/blkback/worker.hpp"
#include "drivers/blkfront/device.hpp"

namespace xblk {

template class blkfront::Device<apps::XenPlatform>;
template class blkback::Device<apps::XenPlatform>;
template class blkback::Manager<apps::XenPlatform>;
template class blkback::Worker<apps::XenPlatform::Env>;

}  // namespace xblk
