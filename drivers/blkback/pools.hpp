// The two pools of seed 000: persistently mapped grants, and free pages for grant copies. Each is either one per device
// (every ring takes the same lock: `Pools::per_device`, as Linux before 4.5) or one per ring (no lock is taken).
#pragma once

#include "drivers/blkback/free_pages.hpp"
#include "drivers/blkback/page_options.hpp"
#include "drivers/blkback/persistent_pool.hpp"
#include "drivers/platform/concepts.hpp"

namespace xblk::blkback {

template <platform::Env Env>
struct Pools {
  // `shared`: by several rings.
  Pools(Env& e, const PageOptions& options, bool shared)
      : env(e), persistent(e, options, shared), free_pages(e, options, shared) {}

  const Env& env;
  PersistentPool<Env> persistent;
  FreePages<Env> free_pages;
};

}  // namespace xblk::blkback
