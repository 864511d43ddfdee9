// One guest domain as the hypervisor sees it.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "drivers/base/units.hpp"
#include "drivers/hypervisor/event_channels.hpp"
#include "drivers/hypervisor/grant_table.hpp"

namespace xblk::hypervisor {

struct DomainLimits {
  std::uint32_t grant_frames = kMaxGrantFrames;
  std::uint32_t ports = kPortsDefault;
};

// Everything in it but the grant table's private part is shared with the guest. It lives until the domain is destroyed
// *and* its last page is unmapped: each mapping holds a share.
template <class Env>
struct Domain {
  using Memory = typename Env::Memory;

  Domain(Env& env, GrantLocks locks, DomId domain, const DomainLimits& limits, Memory pages, Memory grant_frames)
      : id(domain),
        memory(std::move(pages)),
        grant_memory(std::move(grant_frames)),
        grants(env, locks, grant_memory.base(), limits.grant_frames, memory.pages()) {}

  [[nodiscard]] std::byte* page(FrameNumber frame) const { return memory.base() + frame.value() * kPageSize; }

  const DomId id;
  Memory memory;
  Memory grant_memory;
  std::shared_ptr<Memory> event_memory;
  GrantTable<Env> grants;
  typename EventChannels<Env>::PortsPtr ports;
};

}  // namespace xblk::hypervisor
