// A guest that lives in the hypervisor's process (platform::FrontHypervisor): for the model and for tests.
#pragma once

#include <memory>
#include <optional>
#include <utility>

#include "drivers/base/result.hpp"
#include "drivers/hypervisor/guest.hpp"
#include "drivers/hypervisor/hypervisor.hpp"
#include "drivers/platform/concepts.hpp"

namespace xblk::hypervisor {

template <class Env>
class InProcessGuest {
 public:
  // Domain `id` exists exactly as long as this object.
  static Result<std::unique_ptr<InProcessGuest>> create(Hypervisor<Env>& hypervisor, DomId id, std::uint32_t pages,
                                                        const DomainLimits& limits = {}) {
    auto domain = hypervisor.create_domain(id, pages, limits);
    if (!domain) return tl::unexpected(domain.error());
    return std::unique_ptr<InProcessGuest>(new InProcessGuest(hypervisor, std::move(*domain), limits));
  }
  ~InProcessGuest() { hypervisor_.destroy_domain(domain_->id); }
  InProcessGuest(const InProcessGuest&) = delete;
  InProcessGuest& operator=(const InProcessGuest&) = delete;

  Result<platform::PageBlock> allocate_pages(DomId peer, std::uint32_t pages) {
    return pages_.allocate_pages(peer, pages);
  }
  void free_pages(const platform::PageBlock& block) { pages_.free_pages(block); }
  [[nodiscard]] std::optional<FrameNumber> frame_of(const std::byte* address) const { return pages_.frame_of(address); }
  Result<GrantRef> grant(DomId peer, FrameNumber frame, platform::Access access) {
    return pages_.grant(peer, frame, access);
  }
  bool end_access(GrantRef gref) { return pages_.end_access(gref); }
  [[nodiscard]] DomId domain() const { return domain_->id; }

  Result<EventPort> allocate_port(DomId remote) {
    auto local = EventBell<Env>::create();
    if (!local) return tl::unexpected(local.error());
    auto distant = EventBell<Env>::create();
    if (!distant) return tl::unexpected(distant.error());
    return hypervisor_.channels().allocate_unbound(*domain_->ports, remote, std::move(*local), std::move(*distant));
  }
  void notify(EventPort port) { domain_->ports->notify(port); }
  bool consume(EventPort port) { return domain_->ports->consume(port); }
  void mask(EventPort port) { domain_->ports->mask(port); }
  void unmask(EventPort port) { domain_->ports->unmask(port); }
  [[nodiscard]] typename Env::Waitable waitable(EventPort port) { return domain_->ports->waitable(port); }
  void close_port(EventPort port) { hypervisor_.channels().close(*domain_->ports, port); }

  // Raw access, for tests that play a hostile guest.
  [[nodiscard]] Domain<Env>& raw() { return *domain_; }

 private:
  InProcessGuest(Hypervisor<Env>& hypervisor, std::shared_ptr<Domain<Env>> domain, const DomainLimits& limits)
      : hypervisor_(hypervisor),
        domain_(std::move(domain)),
        pages_(hypervisor.env(), domain_->id, domain_->memory.base(), domain_->memory.pages(),
               domain_->grant_memory.base(), limits.grant_frames) {}

  Hypervisor<Env>& hypervisor_;
  std::shared_ptr<Domain<Env>> domain_;
  GuestPages<Env> pages_;
};

}  // namespace xblk::hypervisor
