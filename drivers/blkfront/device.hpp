// The frontend vbd: its life cycle over the XenBus states, and its queues behind the BlockDevice interface.
//
// Threads: turn() belongs to one control thread, which also starts and ends the device; channels belong to the callers'
// threads. The two meet at the rings' locks. A ring, once made, exists for the device's whole life; a connect attaches
// the negotiated number of them, a reconnect may attach another number.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "drivers/base/statistics_file.hpp"
#include "drivers/blkfront/block_device.hpp"
#include "drivers/blkfront/features.hpp"
#include "drivers/blkfront/hold_marks.hpp"
#include "drivers/blkfront/negotiated.hpp"
#include "drivers/blkfront/queue.hpp"
#include "drivers/blkif/keys.hpp"
#include "drivers/blkif/negotiation.hpp"
#include "drivers/blkif/policy.hpp"
#include "drivers/blkif/xenbus_state.hpp"
#include "drivers/platform/concepts.hpp"

namespace xblk::blkfront {

template <platform::Platform P>
class Device final : public BlockDevice {
 public:
  using Env = typename P::Env;

  struct Options {
    std::string path;         // frontend directory in xenstore
    blkif::PolicyMap policy;  // overrides the keys of xblk-policy
  };

  Device(Env& env, typename P::Front& hypervisor, typename P::Keys& keys, Options options, StatisticsFile statistics)
      : env_(env),
        hypervisor_(hypervisor),
        keys_(keys),
        options_(std::move(options)),
        statistics_(std::move(statistics)) {
    queues_.reserve(blkif::kQueuesMax);
  }
  ~Device() override {
    give_up();
    if (!released_) tear_down_queues();
    // An error says that there was no such watch: start() did not get that far.
    static_cast<void>(keys_.unwatch(backend_path_ + "/state", "backend-state"));
    static_cast<void>(keys_.unwatch(reconnect_key(), "reconnect"));
  }

  // ---- control thread ----

  // Announces the device; turn() carries it to Connected.
  Status start() {
    auto backend = keys_.read(options_.path + "/backend");
    if (!backend) return forward(backend.error(), "no such vbd: " + options_.path);
    auto backend_id = keys_.read(options_.path + "/backend-id");
    if (!backend_id) return forward(backend_id.error(), options_.path);
    auto domid = blkif::keys::parse_bounded(blkif::keys::kBackendId, *backend_id, 0, 0x7fef);
    if (!domid) return forward(domid.error(), options_.path);
    backend_path_ = *backend;
    backend_ = DomId(static_cast<std::uint16_t>(*domid));
    reconnects_seen_ = reconnect_counter();
    if (auto done = keys_.watch(backend_path_ + "/state", "backend-state"); !done) return done;
    if (auto done = keys_.watch(reconnect_key(), "reconnect"); !done) return done;
    // What a predecessor died of would be taken for the reason of our next failure.
    if (auto cleared = keys_.remove(options_.path + "/xblk-error"); !cleared) return cleared;
    if (!statistics_.path().empty()) {
      if (auto done = write(blkif::keys::kStatistics, statistics_.path()); !done) return done;
    }
    // A backend that serves a predecessor has to close first; from there on this is a reconnect.
    reconnect_wanted_ = blkif::backend_serves_predecessor(peer_state());
    return set_state(reconnect_wanted_ ? blkif::XenbusState::closed : blkif::XenbusState::initialising);
  }

  // Reads what has changed and acts on it. Never blocks.
  void turn() {
    if (abandon_wanted_) return backend_gone();
    bool reconnect_written = false;
    for (int n = 0; n < kEventsMax; ++n) {
      const auto event = keys_.poll_watch();
      if (!event) break;
      reconnect_written |= event->token == "reconnect";
    }
    if (reconnect_written && reconnect_counter() != reconnects_seen_) reconnect_wanted_ = true;
    if (!closing_ && any_ring_broken()) end_broken_device();
    if (connected() && features_.left_of(info_.negotiated) != published_ && !checked(publish_negotiated())) return;
    for (int steps = 0; steps < kActionsMax && !dead_; ++steps) {
      if (!advance()) return;
    }
  }

  // The host or the hypervisor connection is gone: everything in flight fails now.
  void backend_gone() {
    give_up();
    failure_ = "the backend is gone";
    dead_ = true;
  }

  [[nodiscard]] blkif::XenbusState state() const { return state_; }
  [[nodiscard]] bool connected() const { return state_ == blkif::XenbusState::connected && !closing_ && !dead_; }
  [[nodiscard]] bool closed() const { return dead_ || (closing_ && state_ == blkif::XenbusState::closed && released_); }
  [[nodiscard]] const std::string& failure() const { return failure_; }
  [[nodiscard]] StatisticsFile& statistics() { return statistics_; }

  // Asks for an orderly end; turn() until closed(). Any thread.
  void request_close() { close_wanted_ = true; }
  // No longer waits for the backend to close: turn() gives up what is in flight, and closed() follows. Any thread.
  void abandon() { abandon_wanted_ = true; }

  // ---- BlockDevice ----

  // Of the first queue's last connect: the control thread may be renegotiating at this moment.
  [[nodiscard]] DeviceInfo info() const override {
    const Locked queues(channels_mutex_);
    if (queues_.empty()) return {};
    const Held held(queues_[0]->ring);
    DeviceInfo info = queues_[0]->ring.device();
    info.negotiated = features_.left_of(info.negotiated);
    return info;
  }

  Result<std::span<std::byte>> allocate_buffers(Bytes size) override {
    const auto pages = static_cast<std::uint32_t>((size.value() + kPageSize - 1) / kPageSize);
    auto block = hypervisor_.allocate_pages(backend_, pages);
    if (!block) return forward(block.error(), "grantable memory for I/O buffers");
    platform::LockWait ignored;
    buffers_mutex_.lock(ignored);
    buffers_.push_back(*block);
    buffers_mutex_.unlock();
    return std::span(block->address, std::size_t{pages} * kPageSize);
  }

  void free_buffers(std::span<std::byte> block) override {
    const bool reusable = end_abandoned() == 0;
    platform::LockWait ignored;
    buffers_mutex_.lock(ignored);
    const auto found =
        std::find_if(buffers_.begin(), buffers_.end(), [&](const auto& b) { return b.address == block.data(); });
    XBLK_CHECK(found != buffers_.end(), "freed what allocate_buffers() gave");
    // A page that the backend may still hold is never reused (XSA-396): the whole block stays out of circulation.
    if (reusable) hypervisor_.free_pages(*found);
    buffers_.erase(found);
    buffers_mutex_.unlock();
  }

  Result<std::unique_ptr<Channel>> open_channel(unsigned number) override;

  [[nodiscard]] std::string statistics_path() const override { return statistics_.path(); }
  [[nodiscard]] std::string backend_statistics_path() const override {
    const Locked path(channels_mutex_);
    return backend_statistics_;
  }

  Status disconnect() override {
    request_close();
    return {};
  }

 private:
  static constexpr int kActionsMax = 16;
  static constexpr int kEventsMax = 1024;  // a backend that writes keys in a loop gets a turn, not the whole thread

  using Queue = blkfront::Queue<P>;
  using Held = HeldRing<P>;

  class QueueChannel;
  friend class QueueChannel;

  // One step of the life cycle; true when it may be asked again at once.
  bool advance() {
    if ((close_wanted_ || reconnect_wanted_) && state_ == blkif::XenbusState::connected) return begin_closing();
    if (closing_ && state_ == blkif::XenbusState::closing) return finish_closing();
    const auto action = blkif::on_backend_state(state_, peer_state());
    switch (action) {
      case blkif::FrontendAction::ignore:
        return false;
      case blkif::FrontendAction::publish:
        return checked(publish());
      case blkif::FrontendAction::connect:
        return checked(connect());
      case blkif::FrontendAction::update:
        return update_capacity();
      case blkif::FrontendAction::close:
        return begin_closing();
      case blkif::FrontendAction::abandon:
        give_up();
        closing_ = true;  // for good: there is nothing to come back to
        failure_ = "the backend has closed the device without a word";
        return checked(set_state(blkif::XenbusState::closed));
      case blkif::FrontendAction::release:
        return release_and_maybe_reconnect();
    }
    return false;
  }

  // ---- Initialising -> Initialised ----

  Status publish() {
    auto tree = keys_.read_tree(backend_path_);
    if (!tree) return forward(tree.error(), backend_path_);
    auto limits = blkif::parse_backend_limits(*tree);
    if (!limits) return forward(limits.error(), backend_path_);
    auto policy = read_policy();
    if (!policy) return tl::unexpected(policy.error());
    policy_ = *policy;
    offer_ = {};
    offer_.persistent = policy_.persistent;
    offer_.ring_page_order = std::min(policy_.ring_page_order, limits->ring_page_order_max);
    const std::uint32_t queues = std::min(policy_.queues, limits->queues_max);
    while (queues_.size() < queues) {
      auto queue = std::make_unique<Queue>(env_, hypervisor_, statistics_.queues()[queues_.size()]);
      const Locked others(channels_mutex_);
      queues_.push_back(std::move(queue));
    }
    released_ = false;
    for (std::uint32_t q = 0; q < queues; ++q) {
      if (auto built = queues_[q]->build(backend_, 1u << offer_.ring_page_order); !built) {
        tear_down_queues();
        return forward(built.error(), fmt::format("queue {}", q));
      }
      offer_.queues.push_back(queues_[q]->offer());
    }
    if (auto written = write_offer(); !written) return written;
    return set_state(blkif::XenbusState::initialised);
  }

  // Stale keys of an earlier connection go in the same transaction: Linux blkfront leaves them, and backends have
  // mapped stale grants for it (T3).
  Status write_offer() {
    return keys_.transaction([this](typename P::Keys& keys) -> Status {
      auto existing = keys.read_tree(options_.path);
      if (!existing) return tl::unexpected(existing.error());
      for (const auto& stale : blkif::stale_frontend_keys(offer_, *existing)) {
        if (auto removed = keys.remove(options_.path + "/" + stale); !removed) return removed;
      }
      for (const auto& [key, value] : blkif::frontend_keys(offer_)) {
        if (auto written = keys.write(options_.path + "/" + key, value); !written) return written;
      }
      return {};
    });
  }

  // ---- Initialised -> Connected ----

  Status connect() {
    auto tree = keys_.read_tree(backend_path_);
    if (!tree) return forward(tree.error(), backend_path_);
    auto backend = blkif::parse_backend_keys(*tree);
    if (!backend) return forward(backend.error(), backend_path_);
    if (const auto path = tree->find(std::string(blkif::keys::kStatistics)); path != tree->end()) {
      const Locked readers(channels_mutex_);
      backend_statistics_ = path->second;
    }
    info_ = agree(policy_, offer_, *backend);
    features_.offer(info_.negotiated);
    attach_rings();
    if (auto published = publish_negotiated(); !published) return published;
    return set_state(blkif::XenbusState::connected);
  }

  void attach_rings() {
    const Negotiated& n = info_.negotiated;
    RingSetup setup;
    setup.backend = backend_;
    setup.slots = blkif::ring_slots(1u << n.ring_page_order, blkif::kNativeAbi);
    setup.segments_max =
        n.indirect_segments_max == 0 ? static_cast<std::uint32_t>(blkif::kDirectSegmentsMax) : n.indirect_segments_max;
    setup.copies = n.persistent || !policy_.trusted;
    setup.device = info_;
    setup.features = &features_;
    setup.marks = &hold_marks_;
    const WaitPolicy wait{policy_.polling == blkif::Polling::adaptive, policy_.event_holdoff,
                          micros(policy_.event_holdoff_us)};
    const bool shared = policy_.pools == blkif::Pools::per_device;
    Pools<P> pools;
    for (std::uint32_t q = 0; q < n.queues; ++q) {
      if (q == 0 || !shared) pools = make_pools(setup, shared ? n.queues : 1u);
      setup.number = q;
      setup.reports_pools = !shared || q == 0;
      queues_[q]->attach(setup, pools, wait);
    }
    statistics_.header().generation.fetch_add(1);
    statistics_.header().queues = n.queues;
    move_channels(n.queues);
  }

  // Sized by the formula of blkfront: slots x pages of a request, for each queue.
  Pools<P> make_pools(const RingSetup& setup, std::uint32_t queues) {
    const std::uint32_t requests = setup.slots * queues;
    const std::uint32_t indirect = setup.segments_max > blkif::kDirectSegmentsMax ? requests : 0;
    const std::uint32_t data = setup.copies ? requests * setup.segments_max : 0;
    const bool persistent = info_.negotiated.persistent;
    PoolSetup kept{backend_, indirect + (persistent ? data : 0), queues > 1, Keep::granted, !policy_.trusted};
    PoolSetup lent{backend_, data, queues > 1, Keep::pages, !policy_.trusted};
    Pools<P> pools;
    pools.indirect = std::make_shared<GrantPool<P>>(env_, hypervisor_, kept);
    if (setup.copies)
      pools.data = persistent ? pools.indirect : std::make_shared<GrantPool<P>>(env_, hypervisor_, lent);
    return pools;
  }

  // Written again when a feature turns out not to be there.
  Status publish_negotiated() {
    published_ = features_.left_of(info_.negotiated);
    const auto negotiated = negotiated_keys(policy_, published_);
    return keys_.transaction([&](typename P::Keys& keys) -> Status {
      for (const auto& [name, value] : negotiated) {
        const std::string key = options_.path + "/" + blkif::keys::negotiated_key(name);
        if (auto written = keys.write(key, value); !written) return written;
      }
      return {};
    });
  }

  // ---- Connected: live resize ----

  // A size that makes no sense changes nothing: the device still has the one that it had.
  bool update_capacity() {
    const auto text = keys_.read(backend_path_ + "/sectors");
    const auto sectors = text ? blkif::keys::parse_bounded("sectors", *text, 1, blkif::kCapacityMaxSectors)
                              : tl::unexpected(text.error());
    if (!sectors || to_bytes(Sectors(*sectors)).value() % info_.sector_size != 0) return false;
    if (info_.capacity == Sectors(*sectors)) return false;
    info_.capacity = Sectors(*sectors);
    for (auto& queue : queues_) {
      const Held held(queue->ring);
      queue->ring.set_capacity(info_.capacity);
    }
    return false;
  }

  // ---- Connected -> Closing -> Closed ----

  // The rings said why in their counters; the life cycle goes on to give everything back.
  void end_broken_device() {
    failure_ =
        "the backend broke the ring protocol: a response that nothing asked for, or a grant it did not give back";
    static_cast<void>(write("xblk-error", failure_));
    close_wanted_ = true;
  }

  [[nodiscard]] bool any_ring_broken() {
    return std::any_of(queues_.begin(), queues_.end(), [](const auto& queue) {
      const Held held(queue->ring);
      return queue->ring.broken();
    });
  }

  bool begin_closing() {
    closing_ = true;
    for (auto& queue : queues_) {
      const Held held(queue->ring);
      queue->ring.quiesce();
    }
    return checked(set_state(blkif::XenbusState::closing));
  }

  // New I/O is refused from here on; what is in flight is let finish.
  bool finish_closing() {
    std::uint32_t in_flight = 0;
    for (std::uint32_t q = 0; q < info_.negotiated.queues; ++q) {
      const Held held(queues_[q]->ring);
      queues_[q]->ring.process_responses();
      in_flight += queues_[q]->ring.in_flight();
    }
    if (in_flight > 0 && blkif::backend_serves_predecessor(peer_state())) return false;  // it still answers
    for (std::uint32_t q = 0; q < info_.negotiated.queues; ++q) {
      const Held held(queues_[q]->ring);
      queues_[q]->ring.detach(reconnect_wanted_ && !close_wanted_ ? Ring<P>::Until::reconnect
                                                                  : Ring<P>::Until::for_good);
    }
    return checked(set_state(blkif::XenbusState::closed));
  }

  // The backend has closed too: every grant is ours again.
  bool release_and_maybe_reconnect() {
    if (!released_) tear_down_queues();
    if (close_wanted_ || !reconnect_wanted_) return false;
    reconnect_wanted_ = false;
    closing_ = false;
    reconnects_seen_ = reconnect_counter();
    return checked(set_state(blkif::XenbusState::initialising));
  }

  // What the backend still holds is never reused: it stays out of circulation until the domain ends, and is reported.
  void tear_down_queues() {
    std::uint32_t kept = end_abandoned();
    for (auto& queue : queues_) kept += queue->tear_down();
    statistics_.header().queues = 0;
    static_cast<void>(keys_.remove(options_.path + "/" + std::string(blkif::keys::kNegotiatedDirectory)));
    if (kept > 0) static_cast<void>(write("xblk-error", fmt::format("the backend still holds {} of our pages", kept)));
    released_ = true;
  }

  // How many grants of requests that were given up the backend still holds.
  std::uint32_t end_abandoned() {
    const Locked queues(channels_mutex_);
    std::uint32_t held_by_backend = 0;
    for (auto& queue : queues_) {
      const Held held(queue->ring);
      held_by_backend += queue->ring.end_abandoned();
    }
    return held_by_backend;
  }

  void give_up() {
    for (auto& queue : queues_) {
      const Held held(queue->ring);
      queue->ring.detach(Ring<P>::Until::for_good);
      queue->waiter.wake();
    }
  }

  // ---- helpers ----

  class Locked {
   public:
    explicit Locked(typename Env::Mutex& mutex) : mutex_(mutex) {
      platform::LockWait ignored;
      mutex_.lock(ignored);
    }
    ~Locked() { mutex_.unlock(); }
    Locked(const Locked&) = delete;
    Locked& operator=(const Locked&) = delete;

   private:
    typename Env::Mutex& mutex_;
  };

  void move_channels(std::uint32_t queues);

  bool checked(const Status& status) {
    if (status) return true;
    failure_ = status.error().message;
    give_up();
    dead_ = true;
    static_cast<void>(write("xblk-error", failure_));
    static_cast<void>(set_state(blkif::XenbusState::closed));
    return false;
  }

  [[nodiscard]] blkif::XenbusState peer_state() {
    auto text = keys_.read(backend_path_ + "/state");
    return blkif::parse_xenbus_state(text ? std::optional<std::string_view>(*text) : std::nullopt);
  }
  Status set_state(blkif::XenbusState state) {
    state_ = state;
    return write(blkif::keys::kState, std::string(blkif::xenbus_state_key(state)));
  }
  Status write(std::string_view key, const std::string& value) {
    return keys_.write(fmt::format("{}/{}", options_.path, key), value);
  }
  std::string reconnect_key() const { return options_.path + "/" + std::string(blkif::keys::kPolicyReconnect); }
  std::string reconnect_counter() { return keys_.read(reconnect_key()).value_or(""); }
  Result<blkif::FrontPolicy> read_policy() {
    auto tree = keys_.read_tree(options_.path + "/" + std::string(blkif::keys::kPolicyDirectory));
    if (!tree && tree.error().code != ENOENT) return forward(tree.error(), options_.path);
    blkif::PolicyMap entries = tree ? *tree : blkif::PolicyMap{};
    for (const auto& [name, value] : options_.policy) entries[name] = value;
    auto policy = blkif::parse_front_policy(entries);
    if (!policy) return forward(policy.error(), options_.path);
    // The toolstack may say so, too. Anything but a plain yes is a no: better to copy once too often.
    if (keys_.read(options_.path + "/" + std::string(blkif::keys::kTrusted)).value_or("1") != "1") {
      policy->trusted = false;
    }
    return policy;
  }

  Env& env_;
  typename P::Front& hypervisor_;
  typename P::Keys& keys_;
  Options options_;
  StatisticsFile statistics_;
  std::vector<std::unique_ptr<Queue>> queues_;
  std::string backend_path_;
  DomId backend_{};
  std::string backend_statistics_;
  blkif::FrontPolicy policy_;
  blkif::FrontendOffer offer_;
  DeviceInfo info_;
  Features features_;
  Negotiated published_;
  HoldMarks hold_marks_;
  blkif::XenbusState state_ = blkif::XenbusState::initialising;
  std::string reconnects_seen_;
  std::string failure_;
  std::atomic<bool> close_wanted_{false};
  std::atomic<bool> abandon_wanted_{false};
  bool reconnect_wanted_ = false;
  bool closing_ = false;
  bool released_ = true;
  bool dead_ = false;
  typename Env::Mutex buffers_mutex_{env_};
  std::vector<platform::PageBlock> buffers_;
  // Also taken to grow queues_ and to replace backend_statistics_, which the callers' threads read.
  mutable typename Env::Mutex channels_mutex_{env_};
  std::uint32_t attached_queues_ = 1;  // under channels_mutex_
  std::vector<QueueChannel*> channels_;
};

}  // namespace xblk::blkfront

#include "drivers/blkfront/queue_channel.hpp"
