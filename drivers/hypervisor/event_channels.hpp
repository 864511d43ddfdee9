// Event channels: the ports of every domain and what connects them (xen/common/event_channel.c, event_channel.h).
//
//   free -> unbound (allocate_unbound) -> interdomain (the remote domain binds) -> free (close)
//   Closing one end of an interdomain channel sets the other end back to unbound, as on Xen.
//
// Table changes are rare and take one lock for all domains. Sending and receiving take only the port's own lock, for as
// long as it takes to copy a pointer (Xen de6acb78bf: one lock per channel).
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>

#include <fmt/format.h>

#include "drivers/base/check.hpp"
#include "drivers/base/result.hpp"
#include "drivers/base/units.hpp"
#include "drivers/hypervisor/event_bell.hpp"
#include "drivers/hypervisor/lock_policy.hpp"
#include "drivers/hypervisor/real_bell.hpp"

namespace xblk::hypervisor {

// As shared_info on 64-bit x86: 64 words of 64 pending bits. Masks are the receiver's own business (event_bell.hpp).
inline constexpr std::uint32_t kPortsMax = 4096;
inline constexpr std::uint32_t kPortsDefault = 512;

struct PendingBit {
  std::uint64_t* word = nullptr;  // in the receiving guest's event page; null: the bell alone says what is pending
  std::uint64_t bit = 0;

  // Both return whether the bit was set. A set bit makes a further ring unnecessary.
  [[nodiscard]] bool set() const {
    return (std::atomic_ref(*word).fetch_or(bit, std::memory_order_seq_cst) & bit) != 0;
  }
  [[nodiscard]] bool clear() const {
    return (std::atomic_ref(*word).fetch_and(~bit, std::memory_order_seq_cst) & bit) != 0;
  }
};

[[nodiscard]] inline PendingBit pending_bit(std::byte* event_page, EventPort port) {
  auto* words = reinterpret_cast<std::uint64_t*>(event_page);
  return {words + port.value() / 64, std::uint64_t{1} << (port.value() % 64)};
}

// One end of a channel: the place where events for one port arrive.
template <class Env>
struct Endpoint {
  EventBell<Env> bell;
  PendingBit pending{};
  std::shared_ptr<std::byte> event_page{};  // keeps what `pending` points into

  void send() {
    if (pending.word != nullptr && pending.set()) return;
    bell.ring();
  }
  // The bell first: an event that arrives in between finds its bit still set and needs no ring, and what it announces
  // is seen by the caller, who looks after this returns. The other order would lose it.
  bool consume() {
    const bool rung = bell.consume();
    return pending.word != nullptr ? pending.clear() : rung;
  }
};

template <class Env>
class EventChannels {
 public:
  using EndpointPtr = std::shared_ptr<Endpoint<Env>>;

  explicit EventChannels(Env& env) : mutex_(env) {}

  // The ports of one domain; its own operations on them need no lookup of the domain.
  class Ports {
   public:
    Ports(DomId domain, std::uint32_t limit, std::shared_ptr<std::byte> event_page)
        : domain_(domain), limit_(limit), event_page_(std::move(event_page)), ports_(std::make_unique<Port[]>(limit)) {}

    void notify(EventPort port) {
      if (auto end = endpoint(port, &Port::remote)) end->send();
    }
    bool consume(EventPort port) {
      auto end = endpoint(port, &Port::local);
      return end != nullptr && end->consume();
    }
    void mask(EventPort port) {
      if (auto end = endpoint(port, &Port::local)) end->bell.mask();
    }
    void unmask(EventPort port) {
      if (auto end = endpoint(port, &Port::local)) end->bell.unmask();
    }
    [[nodiscard]] typename Env::Waitable waitable(EventPort port) {
      auto end = endpoint(port, &Port::local);
      XBLK_CHECK(end != nullptr, "only an open port is awaited");
      return end->bell.waitable();
    }

   private:
    friend class EventChannels;
    enum class State : std::uint8_t { free, unbound, interdomain };
    struct Port {
      typename Env::SpinLock lock;  // guards the two pointers; the rest is guarded by EventChannels::mutex_
      EndpointPtr local;            // where our events arrive
      EndpointPtr remote;           // where notify() sends; on an unbound port, where the future peer will listen
      State state = State::free;
      bool allocated = false;  // by alloc_unbound: this side made both endpoints, and the channel ends with it
      DomId remote_domain{};
      EventPort remote_port{};
    };

    EndpointPtr endpoint(EventPort port, EndpointPtr Port::*end) {
      if (port.value() == 0 || port.value() >= limit_) return nullptr;
      Port& p = ports_[port.value()];
      platform::LockWait wait;
      const Exclusive guard(p.lock, wait);
      return p.*end;
    }
    static void connect(Port& port, EndpointPtr local, EndpointPtr remote) {
      platform::LockWait wait;
      const Exclusive guard(port.lock, wait);
      port.local = std::move(local);
      port.remote = std::move(remote);
    }

    const DomId domain_;
    const std::uint32_t limit_;
    const std::shared_ptr<std::byte> event_page_;  // null for the control domain
    std::unique_ptr<Port[]> ports_;
  };
  using PortsPtr = std::shared_ptr<Ports>;

  PortsPtr add_domain(DomId domain, std::uint32_t limit, std::shared_ptr<std::byte> event_page) {
    XBLK_CHECK(limit > 1 && limit <= kPortsMax, "port 0 is never valid, and the pending bits end at kPortsMax");
    platform::LockWait wait;
    const Exclusive guard(mutex_, wait);
    auto ports = std::make_shared<Ports>(domain, limit, std::move(event_page));
    const bool added = domains_.emplace(domain, ports).second;
    XBLK_CHECK(added, "a domain is added once");
    return ports;
  }

  void remove_domain(DomId domain) {
    platform::LockWait wait;
    const Exclusive guard(mutex_, wait);
    auto found = domains_.find(domain);
    XBLK_CHECK(found != domains_.end(), "only an added domain is removed");
    for (std::uint32_t i = 1; i < found->second->limit_; ++i) close_locked(*found->second, EventPort(i));
    domains_.erase(found);
  }

  // EVTCHNOP_alloc_unbound: a port of `owner` that only `remote` may bind. The endpoints of both sides are made by the
  // caller, because who awaits them, and in which process, is not the hypervisor's business.
  Result<EventPort> allocate_unbound(Ports& owner, DomId remote, EventBell<Env> local_bell,
                                     EventBell<Env> remote_bell) {
    platform::LockWait wait;
    const Exclusive guard(mutex_, wait);
    const auto port = free_port(owner);
    if (!port) return tl::unexpected(port.error());
    auto local = std::make_shared<Endpoint<Env>>(Endpoint<Env>{std::move(local_bell)});
    if (owner.event_page_ != nullptr) {
      local->event_page = owner.event_page_;
      local->pending = pending_bit(owner.event_page_.get(), *port);
      static_cast<void>(local->pending.clear());  // left from an earlier channel of this number
    }
    auto distant = std::make_shared<Endpoint<Env>>(Endpoint<Env>{std::move(remote_bell)});
    auto& p = owner.ports_[port->value()];
    p.state = Ports::State::unbound;
    p.allocated = true;
    p.remote_domain = remote;
    Ports::connect(p, std::move(local), std::move(distant));
    return *port;
  }

  // EVTCHNOP_bind_interdomain. The new port is pending at once, as on Xen: the remote may have sent before the bind.
  Result<EventPort> bind_interdomain(Ports& owner, DomId remote, EventPort remote_port) {
    platform::LockWait wait;
    const Exclusive guard(mutex_, wait);
    const auto found = domains_.find(remote);
    if (found == domains_.end()) return fail(ESRCH, fmt::format("bind to domain {}: no such domain", remote.value()));
    Ports& distant = *found->second;
    const bool in_range = remote_port.value() > 0 && remote_port.value() < distant.limit_;
    auto* theirs = in_range ? &distant.ports_[remote_port.value()] : nullptr;
    if (theirs == nullptr || theirs->state != Ports::State::unbound || !theirs->allocated ||
        theirs->remote_domain != owner.domain_) {
      return fail(EINVAL, fmt::format("bind to port {} of domain {}: it is not an unbound port for domain {}",
                                      remote_port.value(), remote.value(), owner.domain_.value()));
    }
    const auto port = free_port(owner);
    if (!port) return tl::unexpected(port.error());
    auto& ours = owner.ports_[port->value()];
    ours.state = theirs->state = Ports::State::interdomain;
    ours.allocated = false;
    ours.remote_domain = remote;
    ours.remote_port = remote_port;
    theirs->remote_port = *port;
    Ports::connect(ours, theirs->remote, theirs->local);
    ours.local->bell.unmask();
    ours.local->send();
    return *port;
  }

  // EVTCHNOP_close. The caller has already taken the port's waitable out of its WaitSets.
  void close(Ports& owner, EventPort port) {
    platform::LockWait wait;
    const Exclusive guard(mutex_, wait);
    close_locked(owner, port);
  }

  [[nodiscard]] std::uint32_t open_ports() {
    platform::LockWait wait;
    const Exclusive guard(mutex_, wait);
    std::uint32_t n = 0;
    for (const auto& [domain, ports] : domains_) {
      for (std::uint32_t i = 1; i < ports->limit_; ++i) n += ports->ports_[i].state != Ports::State::free ? 1 : 0;
    }
    return n;
  }

 private:
  Result<EventPort> free_port(Ports& owner) {
    for (std::uint32_t i = 1; i < owner.limit_; ++i) {
      if (owner.ports_[i].state == Ports::State::free) return EventPort(i);
    }
    return fail(ENOSPC, fmt::format("domain {} has all its {} event-channel ports in use", owner.domain_.value(),
                                    owner.limit_ - 1));
  }

  void close_locked(Ports& owner, EventPort port) {
    if (port.value() == 0 || port.value() >= owner.limit_) return;
    auto& p = owner.ports_[port.value()];
    if (p.state == Ports::State::interdomain) {
      const auto peer = domains_.find(p.remote_domain);
      XBLK_CHECK(peer != domains_.end(), "removing a domain unbinds its peers");
      auto& other = peer->second->ports_[p.remote_port.value()];
      other.state = Ports::State::unbound;
      if (p.allocated) Ports::connect(other, other.local, nullptr);
    }
    p.state = Ports::State::free;
    Ports::connect(p, nullptr, nullptr);
  }

  typename Env::Mutex mutex_;
  std::map<DomId, PortsPtr> domains_;
};

}  // namespace xblk::hypervisor
