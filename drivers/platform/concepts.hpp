// THE SEAM. What a platform must offer for the drivers to run on it; CONTRACT.md says the same in prose, and the
// conformance suite (conformance/) checks it on every platform.
//
// The requirements are split by who needs them, not by who provides them: a backend never grants, a frontend never
// maps, and a test may fake one part and keep the rest real. When a type fails, the compiler names the small concept.
#pragma once

#include <concepts>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "drivers/base/result.hpp"
#include "drivers/base/units.hpp"
#include "drivers/platform/grants.hpp"

namespace xblk::platform {

// ---- Env: how code waits ------------------------------------------------------------------------------------------

// A lock that says how long it made its caller wait; the caller adds that to its own counters.
template <class M>
concept Lockable = requires(M m, LockWait& wait) {
  m.lock(wait);
  { m.try_lock() } -> std::same_as<bool>;
  m.unlock();
};

// Something one thread sleeps on until another signals it. Signals are not counted: a signal with no sleeper is
// remembered once.
template <class E>
concept Signal = requires(E e, Instant deadline) {
  e.raise();
  { e.wait_until(deadline) } -> std::same_as<bool>;  // false: deadline passed
};

// One wait for many sources: event channels, store queues, key-store watches. A waitable is level-triggered.
template <class W, class Waitable>
concept WaitSet = requires(W w, Waitable source, std::uint64_t token, Instant deadline,
                           std::vector<std::uint64_t>& ready) {
  { w.add(source, token) } -> std::same_as<Status>;
  w.remove(source);
  w.wait(deadline, ready);  // appends the tokens of ready sources; returns at the deadline with none
  w.wake();                 // makes a concurrent or the next wait() return early
};

template <class E>
concept Env = Lockable<typename E::Mutex> && Signal<typename E::Signal> &&
    WaitSet<typename E::WaitSet, typename E::Waitable> && requires(E& env, const E& cenv) {
  { cenv.now() } -> std::same_as<Instant>;
  requires std::constructible_from<typename E::Mutex, E&>;
  requires std::constructible_from<typename E::Signal, E&>;
  requires std::constructible_from<typename E::WaitSet, E&>;
  // True when spinning would take a CPU that another runnable thread needs: polling must yield.
  { cenv.cpus_oversubscribed() } -> std::same_as<bool>;
  env.relax();  // one turn of a polling loop
  env.yield();  // let another runnable thread have this CPU
  { cenv.thread_cpu() } -> std::same_as<Nanos>;
};

// ---- Hypervisor: events, grants ------------------------------------------------------------------------------------

template <class H>
concept EventChannels = requires(H& h, DomId remote, EventPort port) {
  {h.notify(port)};                           // event to the other end; never blocks
  { h.consume(port) } -> std::same_as<bool>;  // clears pending; false: nothing was pending
  {h.mask(port)};                             // no wake-ups; events stay pending
  {h.unmask(port)};                           // a pending event makes the waitable ready at once
  {h.waitable(port)};                         // ready while pending and not masked
  {h.close_port(port)};
};

// The control-domain side of grants: map, unmap, copy pages that `peer` granted to us. Per-operation status, no
// exception, no partial effect of a failed operation.
template <class H>
concept GrantMapper = requires(H& h, DomId peer, std::span<MapOp> maps, std::span<UnmapOp> unmaps,
                               std::span<CopyOp> copies, LockWait& wait) {
  {h.map(peer, maps, wait)};
  {h.unmap(unmaps, wait)};
  {h.copy(peer, copies, wait)};
};

// Multi-page contiguous mapping, for rings: all pages or none.
template <class H>
concept RingMapper = requires(H& h, DomId peer, std::span<const GrantRef> grefs, std::byte* address) {
  { h.map_contiguous(peer, grefs) } -> std::same_as<Result<std::byte*>>;
  {h.unmap_contiguous(address, std::uint32_t{})};
};

// The guest side of grants: own pages, granted to `peer` and taken back.
template <class H>
concept GrantIssuer = requires(H& h, DomId peer, std::uint32_t pages, PageBlock block, FrameNumber frame, GrantRef gref,
                               Access access, const std::byte* address) {
  { h.allocate_pages(peer, pages) } -> std::same_as<Result<PageBlock>>;
  {h.free_pages(block)};
  { h.frame_of(address) } -> std::same_as<std::optional<FrameNumber>>;  // nullopt: not grantable memory
  { h.grant(peer, frame, access) } -> std::same_as<Result<GrantRef>>;   // ENOSPC: grant table full
  // False while the peer still holds a mapping (GTF_reading/GTF_writing): the page must not be reused (XSA-396).
  { h.end_access(gref) } -> std::same_as<bool>;
};

template <class H>
concept BackHypervisor = EventChannels<H> && GrantMapper<H> && RingMapper<H> &&
    requires(H& h, DomId peer, EventPort remote) {
  { h.bind_interdomain(peer, remote) } -> std::same_as<Result<EventPort>>;
};

template <class H>
concept FrontHypervisor = EventChannels<H> && GrantIssuer<H> && requires(H& h, const H& ch, DomId remote) {
  { h.allocate_port(remote) } -> std::same_as<Result<EventPort>>;
  { ch.domain() } -> std::same_as<DomId>;
};

// ---- The store of keys ---------------------------------------------------------------------------------------------

template <class K>
concept KeyStore = requires(K& k, const std::string& path, const std::string& value) {
  { k.read(path) } -> std::same_as<Result<std::string>>;  // ENOENT when absent
  { k.write(path, value) } -> std::same_as<Status>;
  { k.remove(path) } -> std::same_as<Status>;  // absent is no error
  { k.list(path) } -> std::same_as<Result<std::vector<std::string>>>;
  { k.read_tree(path) } -> std::same_as<Result<std::map<std::string, std::string>>>;
  { k.watch(path, value) } -> std::same_as<Status>;
  { k.unwatch(path, value) } -> std::same_as<Status>;
  {
    k.transaction([](K&) -> Status { return {}; })
    } -> std::same_as<Status>;
  k.poll_watch();  // std::optional<WatchEvent{path, token}>
};

// ---- Platform
// --------------------------------------------------------------------------------------------------------

template <class P>
concept Platform = Env<typename P::Env> && FrontHypervisor<typename P::Front> && BackHypervisor<typename P::Back> &&
    KeyStore<typename P::Keys>;

}  // namespace xblk::platform
