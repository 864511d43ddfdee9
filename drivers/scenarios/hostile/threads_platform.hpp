// Both ends as threads of one process, on memory where a mapping is the page itself: so ThreadSanitizer sees the two
// sides of the seam at the same address, and reports any access of a driver to shared memory that is not made for it.
#pragma once

#include <utility>

#include "drivers/env/real/real_env.hpp"
#include "drivers/env/virtual/memory_store.hpp"
#include "drivers/env/virtual/virtual_env.hpp"
#include "drivers/hypervisor/dom0.hpp"
#include "drivers/hypervisor/hypervisor.hpp"
#include "drivers/hypervisor/in_process_guest.hpp"
#include "drivers/hypervisor/real_bell.hpp"
#include "drivers/platform/concepts.hpp"

namespace xblk::scenarios {

class ThreadsEnv : public env::RealEnv {
 public:
  using Memory = env::VirtualMemory;
};

}  // namespace xblk::scenarios

namespace xblk::hypervisor {

template <>
class EventBell<scenarios::ThreadsEnv> : public EventBell<env::RealEnv> {
 public:
  static Result<EventBell> create() {
    auto bell = EventBell<env::RealEnv>::create();
    if (!bell) return tl::unexpected(bell.error());
    return EventBell(std::move(*bell));
  }

 private:
  explicit EventBell(EventBell<env::RealEnv> bell) : EventBell<env::RealEnv>(std::move(bell)) {}
};

}  // namespace xblk::hypervisor

namespace xblk::scenarios {

// The key store belongs to one thread: life cycles are driven from there, and only data paths run elsewhere.
struct ThreadsPlatform {
  using Env = ThreadsEnv;
  using Front = hypervisor::InProcessGuest<Env>;
  using Back = hypervisor::Dom0<Env>;
  using Keys = env::MemoryKeys;
};
static_assert(platform::Platform<ThreadsPlatform>);

}  // namespace xblk::scenarios
