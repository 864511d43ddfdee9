// Emulated Xen, once for every Env: the domains, their grant tables and event channels, dom0's maptrack.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "drivers/base/result.hpp"
#include "drivers/base/units.hpp"
#include "drivers/hypervisor/domain.hpp"
#include "drivers/hypervisor/maptrack.hpp"

namespace xblk::hypervisor {

inline constexpr DomId kFirstReservedDomain{0x7FF0};  // DOMID_FIRST_RESERVED of xen.h

struct HypervisorConfig {
  GrantLocks grant_locks = GrantLocks::split;
  // Pages that dom0 may hold mapped: the default vm.max_map_count (65,530) less a reserve for the process itself.
  std::uint32_t maptrack_limit = 60'000;
  std::uint32_t maptrack_lists = 16;  // split: one for each worker, as many as are useful
  std::uint32_t control_ports = kPortsMax;
};

// What must all be zero once every device is disconnected and every guest is gone.
struct HypervisorUsage {
  std::uint32_t domains = 0;
  std::uint32_t ports = 0;
  std::uint32_t mappings = 0;
  std::uint32_t active_grants = 0;  // of domains that are not destroyed
  friend bool operator==(const HypervisorUsage&, const HypervisorUsage&) = default;
};

template <class Env>
class Hypervisor {
 public:
  using DomainPtr = std::shared_ptr<Domain<Env>>;
  using Ports = typename EventChannels<Env>::Ports;

  // One page that dom0 holds mapped.
  struct Mapping {
    DomainPtr domain;
    GrantRef gref{};
    platform::Access access = platform::Access::read_write;
    std::byte* address = nullptr;
  };
  using Track = Maptrack<Env, Mapping>;

  explicit Hypervisor(Env& env, HypervisorConfig config = {})
      : env_(env),
        config_(config),
        domains_lock_(env),
        channels_(env),
        control_ports_(channels_.add_domain(kDom0, config.control_ports, nullptr)),
        maptrack_(env, config.grant_locks, config.maptrack_limit, config.maptrack_lists) {}
  Hypervisor(const Hypervisor&) = delete;
  Hypervisor& operator=(const Hypervisor&) = delete;

  Result<DomainPtr> create_domain(DomId id, std::uint32_t pages, const DomainLimits& limits = {}) {
    if (id == kDom0 || id >= kFirstReservedDomain) {
      return fail(EINVAL,
                  fmt::format("domain {}: guests are numbered 1 to {}", id.value(), kFirstReservedDomain.value() - 1));
    }
    if (pages == 0) return fail(EINVAL, fmt::format("domain {}: a guest needs at least one page", id.value()));
    auto domain = build(id, pages, limits);
    if (!domain) return domain;
    platform::LockWait wait;
    const Exclusive guard(domains_lock_, wait);
    if (!domains_.emplace(id, *domain).second) {
      return fail(EBUSY, fmt::format("domain {} exists already", id.value()));
    }
    auto page = std::shared_ptr<std::byte>((*domain)->event_memory, (*domain)->event_memory->base());
    (*domain)->ports = channels_.add_domain(id, limits.ports, std::move(page));
    return domain;
  }

  // Ends the domain at once: its ports close, its grants admit nobody new. Pages that dom0 has mapped stay valid until
  // dom0 unmaps them. Destroying an unknown domain is no error.
  void destroy_domain(DomId id) {
    platform::LockWait wait;
    DomainPtr domain;
    {
      const Exclusive guard(domains_lock_, wait);
      const auto found = domains_.find(id);
      if (found == domains_.end()) return;
      domain = std::move(found->second);
      domains_.erase(found);
      channels_.remove_domain(id);
    }
    domain->grants.close(wait);
  }

  [[nodiscard]] DomainPtr find(DomId id, platform::LockWait& wait) {
    const Shared guard(domains_lock_, wait);
    const auto found = domains_.find(id);
    return found == domains_.end() ? nullptr : found->second;
  }

  [[nodiscard]] HypervisorUsage usage() {
    platform::LockWait wait;
    HypervisorUsage usage;
    usage.ports = channels_.open_ports();
    usage.mappings = maptrack_.in_use();
    const Shared guard(domains_lock_, wait);
    usage.domains = static_cast<std::uint32_t>(domains_.size());
    for (const auto& [id, domain] : domains_) usage.active_grants += domain->grants.active_entries();
    return usage;
  }

  [[nodiscard]] Env& env() { return env_; }
  [[nodiscard]] const HypervisorConfig& config() const { return config_; }
  [[nodiscard]] EventChannels<Env>& channels() { return channels_; }
  [[nodiscard]] Ports& control_ports() { return *control_ports_; }
  [[nodiscard]] Track& maptrack() { return maptrack_; }

 private:
  Result<DomainPtr> build(DomId id, std::uint32_t pages, const DomainLimits& limits) {
    using Memory = typename Env::Memory;
    auto memory = Memory::create(fmt::format("xblk-guest-{}", id.value()), pages);
    if (!memory) return tl::unexpected(memory.error());
    auto grants = Memory::create(fmt::format("xblk-grants-{}", id.value()), limits.grant_frames);
    if (!grants) return tl::unexpected(grants.error());
    auto events = Memory::create(fmt::format("xblk-events-{}", id.value()), 1);
    if (!events) return tl::unexpected(events.error());
    auto domain =
        std::make_shared<Domain<Env>>(env_, config_.grant_locks, id, limits, std::move(*memory), std::move(*grants));
    domain->event_memory = std::make_shared<Memory>(std::move(*events));
    return domain;
  }

  Env& env_;
  const HypervisorConfig config_;
  typename Env::RwLock domains_lock_;
  std::map<DomId, DomainPtr> domains_;
  EventChannels<Env> channels_;
  typename EventChannels<Env>::PortsPtr control_ports_;
  Track maptrack_;
};

}  // namespace xblk::hypervisor
