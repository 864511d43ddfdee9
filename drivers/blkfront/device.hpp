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
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "drivers/base/statistics_file.hpp"
#include "drivers/blkfront/block_device.hpp"
#include "drivers/blkfront/buffers.hpp"
#include "drivers/blkfront/features.hpp"
#include "drivers/blkfront/hold_marks.hpp"
#include "drivers/blkfront/negotiated.hpp"
#include "drivers/blkfront/queue.hpp"
#include "drivers/blkfront/vbd_directory.hpp"
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
        directory_(keys, options.path),
        overrides_(std::move(options.policy)),
        statistics_(std::move(statistics)),
        buffers_(env, hypervisor) {
    queues_.reserve(blkif::kQueuesMax);
  }
  ~Device() override {
    give_up();
    if (!released_) tear_down_queues();
  }

  // ---- control thread ----

  // Announces the device; turn() carries it to Connected.
  Status start() {
    if (auto opened = directory_.open(); !opened) return opened;
    // What a predecessor died of would be taken for the reason of our next failure.
    if (auto cleared = directory_.clear_error(); !cleared) return cleared;
    if (!statistics_.path().empty()) {
      if (auto done = directory_.write(blkif::keys::kStatistics, statistics_.path()); !done) return done;
    }
    // A backend that serves a predecessor has to close first; from there on this is a reconnect.
    reconnect_wanted_ = blkif::backend_serves_predecessor(directory_.backend_state());
    return set_state(reconnect_wanted_ ? blkif::XenbusState::closed : blkif::XenbusState::initialising);
  }

  // Reads what has changed and acts on it. Never blocks.
  void turn() {
    if (abandon_wanted_) return backend_gone();
    const auto events = directory_.take_events();
    if (events.reconnect) reconnect_wanted_ = true;
    if (!closing_ && any_ring_broken()) end_broken_device();
    if (connected() && features_.left_of(info_.negotiated) != published_ && !checked(publish_negotiated())) return;
    // A connected device rests until one of the keys it watches changes: xenstored is not asked for news.
    if (connected() && !close_wanted_ && !reconnect_wanted_ && !events.any && !more_to_do_) return;
    more_to_do_ = false;
    for (int steps = 0; steps < kActionsMax && !dead_; ++steps) {
      if (!advance()) return;
    }
    more_to_do_ = true;
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
    return buffers_.allocate(directory_.backend(), size);
  }
  void free_buffers(std::span<std::byte> block) override { buffers_.free(block, end_abandoned() == 0); }

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

  using Queue = blkfront::Queue<P>;
  using Held = HeldRing<P>;

  class QueueChannel;
  friend class QueueChannel;

  // One step of the life cycle; true when it may be asked again at once.
  bool advance() {
    if ((close_wanted_ || reconnect_wanted_) && state_ == blkif::XenbusState::connected) return begin_closing();
    if (closing_ && state_ == blkif::XenbusState::closing) return finish_closing();
    const auto action = blkif::on_backend_state(state_, directory_.backend_state());
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
    auto tree = directory_.read_backend();
    if (!tree) return tl::unexpected(tree.error());
    auto limits = blkif::parse_backend_limits(*tree);
    if (!limits) return directory_.blame_backend(limits.error());
    auto policy = directory_.read_policy(overrides_);
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
      if (auto built = queues_[q]->build(directory_.backend(), 1u << offer_.ring_page_order); !built) {
        tear_down_queues();
        return forward(built.error(), fmt::format("queue {}", q));
      }
      offer_.queues.push_back(queues_[q]->offer());
    }
    if (auto written = directory_.write_offer(offer_); !written) return written;
    return set_state(blkif::XenbusState::initialised);
  }

  // ---- Initialised -> Connected ----

  Status connect() {
    auto tree = directory_.read_backend();
    if (!tree) return tl::unexpected(tree.error());
    auto backend = blkif::parse_backend_keys(*tree);
    if (!backend) return directory_.blame_backend(backend.error());
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
    setup.backend = directory_.backend();
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
    PoolSetup kept{setup.backend, indirect + (persistent ? data : 0), queues > 1, Keep::granted, !policy_.trusted};
    PoolSetup lent{setup.backend, data, queues > 1, Keep::pages, !policy_.trusted};
    Pools<P> pools;
    pools.indirect = std::make_shared<GrantPool<P>>(env_, hypervisor_, kept);
    if (setup.copies)
      pools.data = persistent ? pools.indirect : std::make_shared<GrantPool<P>>(env_, hypervisor_, lent);
    return pools;
  }

  // Written again when a feature turns out not to be there.
  Status publish_negotiated() {
    published_ = features_.left_of(info_.negotiated);
    return directory_.write_negotiated(negotiated_keys(policy_, published_));
  }

  // ---- Connected: live resize ----

  // A size that makes no sense changes nothing: the device still has the one that it had.
  bool update_capacity() {
    const auto capacity = directory_.backend_capacity();
    if (!capacity || *capacity == info_.capacity) return false;
    if (to_bytes(*capacity).value() % info_.sector_size != 0) return false;
    info_.capacity = *capacity;
    // The first queue last: info() reads it, and what that says holds for all of them.
    for (auto queue = queues_.rbegin(); queue != queues_.rend(); ++queue) {
      const Held held((*queue)->ring);
      (*queue)->ring.set_capacity(info_.capacity);
    }
    return false;
  }

  // ---- Connected -> Closing -> Closed ----

  // The rings said why in their counters; the life cycle goes on to give everything back.
  void end_broken_device() {
    failure_ =
        "the backend broke the ring protocol: a response that nothing asked for, or a grant it did not give back";
    directory_.write_error(failure_);
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
    if (in_flight > 0 && blkif::backend_serves_predecessor(directory_.backend_state()))
      return false;  // it still answers
    detach_queues(reconnect_wanted_ && !close_wanted_ ? Ring<P>::Until::reconnect : Ring<P>::Until::for_good);
    return checked(set_state(blkif::XenbusState::closed));
  }

  // The backend has closed too: every grant is ours again.
  bool release_and_maybe_reconnect() {
    if (!released_) tear_down_queues();
    if (close_wanted_ || !reconnect_wanted_) return false;
    reconnect_wanted_ = false;
    closing_ = false;
    directory_.note_reconnect();
    return checked(set_state(blkif::XenbusState::initialising));
  }

  // What the backend still holds is never reused: it stays out of circulation until the domain ends, and is reported.
  void tear_down_queues() {
    std::uint32_t kept = end_abandoned();
    for (auto& queue : queues_) kept += queue->tear_down();
    statistics_.header().queues = 0;
    directory_.remove_negotiated();
    if (kept > 0) directory_.write_error(fmt::format("the backend still holds {} of our pages", kept));
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

  void give_up() { detach_queues(Ring<P>::Until::for_good); }

  void detach_queues(typename Ring<P>::Until until) {
    for (auto& queue : queues_) {
      const Held held(queue->ring);
      queue->ring.detach(until);
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
    directory_.write_error(failure_);
    static_cast<void>(set_state(blkif::XenbusState::closed));
    return false;
  }

  Status set_state(blkif::XenbusState state) {
    state_ = state;
    return directory_.write_state(state);
  }

  Env& env_;
  typename P::Front& hypervisor_;
  VbdDirectory<typename P::Keys> directory_;
  const blkif::PolicyMap overrides_;
  StatisticsFile statistics_;
  Buffers<P> buffers_;
  std::vector<std::unique_ptr<Queue>> queues_;
  std::string backend_statistics_;
  blkif::FrontPolicy policy_;
  blkif::FrontendOffer offer_;
  DeviceInfo info_;
  Features features_;
  Negotiated published_;
  HoldMarks hold_marks_;
  blkif::XenbusState state_ = blkif::XenbusState::initialising;
  std::string failure_;
  std::atomic<bool> close_wanted_{false};
  std::atomic<bool> abandon_wanted_{false};
  bool reconnect_wanted_ = false;
  bool closing_ = false;
  bool released_ = true;
  bool dead_ = false;
  bool more_to_do_ = false;  // the last turn stopped at kActionsMax
  // Also taken to grow queues_ and to replace backend_statistics_, which the callers' threads read.
  mutable typename Env::Mutex channels_mutex_{env_};
  std::uint32_t attached_queues_ = 1;  // under channels_mutex_
  std::vector<QueueChannel*> channels_;
};

}  // namespace xblk::blkfront

#include "drivers/blkfront/queue_channel.hpp"
