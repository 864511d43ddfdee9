// What two offers and a policy come to, and the keys that say so.
#pragma once

#include "drivers/blkfront/block_device.hpp"
#include "drivers/blkif/negotiation.hpp"
#include "drivers/blkif/policy.hpp"

namespace xblk::blkfront {

DeviceInfo agree(const blkif::FrontPolicy& policy, const blkif::FrontendOffer& offer,
                 const blkif::BackendOffer& backend);

// For `xblk-negotiated/`: every policy of this end as it is in force, and what became of the offers of both; `ordering`
// and `discard` in the words of the backend's policies.
blkif::PolicyMap negotiated_keys(const blkif::FrontPolicy& policy, const Negotiated& negotiated);

}  // namespace xblk::blkfront
