// Random changes of a pair of ends' policies, and what the ends must agree on after them.
#pragma once

#include "drivers/base/prng.hpp"
#include "drivers/blkif/policy.hpp"

namespace xblk::scenarios {

struct PolicyPair {
  blkif::PolicyMap front;
  blkif::PolicyMap back;
};

// Sets one to three policies, of either end, to values of the interop matrix.
void change_policies(PolicyPair& pair, Prng& random);
// Writes every policy's default, so that what was changed before is undone in a key store, too.
void set_defaults(PolicyPair& pair);
// Keys of xblk-negotiated, as each end must publish them.
blkif::PolicyMap frontend_agreement(const PolicyPair& pair);
blkif::PolicyMap backend_agreement(const PolicyPair& pair);

}  // namespace xblk::scenarios
