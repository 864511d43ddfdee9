// The life cycle of one backend vbd, driven by the two XenBus states (blkif.h, state diagrams; blkif/xenbus_state.hpp
// holds the table). The control thread calls evaluate() whenever a watched key may have changed; rings run elsewhere.
//
//   probe       publish limits                                   -> InitWait
//   take over   a predecessor's live rings, found at probe        = Connected
//   connect     read the frontend's keys, map rings, publish      -> Connected
//   disconnect  stop rings, unmap everything, close ports         -> Closed
//
// Whatever goes wrong with one frontend costs only its own device: the error stands in `xblk-error` of the backend's
// directory and the device closes.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "drivers/base/statistics_file.hpp"
#include "drivers/blkback/connection.hpp"
#include "drivers/blkif/keys.hpp"
#include "drivers/blkif/negotiation.hpp"
#include "drivers/blkif/policy.hpp"
#include "drivers/blkif/xenbus_state.hpp"
#include "drivers/platform/concepts.hpp"
#include "drivers/store/store.hpp"

namespace xblk::blkback {

// What all devices of a host share. `runners` step the rings; ring q of domain d goes to runner (d + q) modulo their
// number.
template <platform::Platform P>
struct DeviceContext {
  typename P::Env& env;
  typename P::Back& hypervisor;
  typename P::Keys& keys;
  std::vector<RingRunner<typename P::Env::Waitable>*> runners;
  std::string statistics_directory;  // empty: counters stay in memory
  std::function<void(const std::string&)> log;
};

template <platform::Platform P>
class Device {
 public:
  Device(DeviceContext<P>& context, std::string path) : context_(context), path_(std::move(path)) {}
  ~Device() {
    disconnect();
    if (watching_) static_cast<void>(context_.keys.unwatch(frontend_path_ + "/state", path_));
  }
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  // Reads what the toolstack wrote, opens the store, publishes the limits.
  Status probe() {
    auto frontend = read(blkif::keys::kFrontend);
    auto domid = frontend ? bounded(blkif::keys::kFrontendId, 0x7fef)
                          : tl::unexpected(frontend.error());  // < DOMID_FIRST_RESERVED
    auto params = domid ? read(blkif::keys::kParams) : tl::unexpected(domid.error());
    if (!params) return forward(params.error(), path_);
    frontend_path_ = *frontend;
    frontend_ = DomId(static_cast<std::uint16_t>(*domid));
    if (auto opened = open_store(*params); !opened) return opened;
    if (auto opened = open_statistics(); !opened) return opened;
    if (auto watched = context_.keys.watch(frontend_path_ + "/state", path_); !watched) return watched;
    watching_ = true;
    const auto own = blkif::parse_xenbus_state(optional(read(blkif::keys::kState)));
    if (own != blkif::XenbusState::connected || peer_state() != blkif::XenbusState::connected) return publish_limits();
    if (auto taken = take_over(); !taken) fail_device(taken.error());
    return {};
  }

  // Acts until nothing is left to do: each action changes our state, and the table is asked again.
  void evaluate() {
    for (int steps = 0; steps < kActionsMax && !removed_; ++steps) {
      const bool online = optional(read(blkif::keys::kOnline)).value_or("0") == "1";
      const auto action = blkif::on_frontend_state(state_, peer_state(), online);
      if (action == blkif::BackendAction::ignore) {
        republish_changed_limits();
        return follow_params();
      }
      if (auto done = act(action); !done) return fail_device(done.error());
    }
  }

  // The frontend's process or domain is gone without a word. Its rings go first, whatever the key store says; then, as
  // a toolstack would, its state is set to Closed, so that a successor starts from a clean pair of states.
  void frontend_gone() {
    disconnect();
    note(context_.keys.write(frontend_path_ + "/state",
                             std::string(blkif::xenbus_state_key(blkif::XenbusState::closed))));
    evaluate();
  }

  // The driver ends but the device does not: the keys stay as they are, for a successor that takes the rings over.
  void abandon() {
    if (connection_ != nullptr) connection_->stop();
    connection_.reset();
  }

  // What the rings met and cannot say themselves. Once for each connection.
  void report_troubles() {
    if (connection_ == nullptr) return;
    if (!halt_reported_) report_halted_ring();
    if (!shortage_reported_) report_shortage_of_mappings();
  }

  [[nodiscard]] bool removed() const { return removed_; }
  [[nodiscard]] DomId frontend() const { return frontend_; }
  [[nodiscard]] const std::string& frontend_path() const { return frontend_path_; }
  [[nodiscard]] blkif::XenbusState state() const { return state_; }
  [[nodiscard]] bool connected() const { return connection_ != nullptr; }
  [[nodiscard]] StatisticsFile& statistics() { return *statistics_; }

 private:
  static constexpr int kActionsMax = 16;  // a frontend that writes states in a loop gets a turn, not the whole thread

  Status act(blkif::BackendAction action) {
    switch (action) {
      case blkif::BackendAction::ignore:
        return {};
      case blkif::BackendAction::publish_limits:
      case blkif::BackendAction::prepare_reconnect:
        disconnect();
        return publish_limits();
      case blkif::BackendAction::connect:
        return connect();
      case blkif::BackendAction::start_closing:
        return set_state(blkif::XenbusState::closing);
      case blkif::BackendAction::disconnect:
        disconnect();
        return set_state(blkif::XenbusState::closed);
      case blkif::BackendAction::remove:
        disconnect();
        removed_ = true;
        // The toolstack may have removed the directory already: a state written then would be a ghost of the device.
        return read(blkif::keys::kFrontend) ? set_state(blkif::XenbusState::closed) : Status();
    }
    return {};
  }

  Status publish_limits() {
    auto policy = read_policy();
    if (!policy) return tl::unexpected(policy.error());
    policy_ = *policy;
    // What an earlier connection died of would be taken for the reason of the next failure.
    if (auto cleared = context_.keys.remove(path_ + "/xblk-error"); !cleared) return cleared;
    limits_ = {policy_.queues, policy_.ring_page_order, static_cast<std::uint16_t>(policy_.indirect_segments)};
    if (auto written = write_limits(); !written) return written;
    return set_state(blkif::XenbusState::init_wait);
  }

  // A key that says by its absence that something is not offered must not be left from an earlier offer. One
  // transaction, as a frontend may be reading.
  Status write_limits() {
    return context_.keys.transaction([&](typename P::Keys& keys) -> Status {
      if (limits_.indirect_segments_max == 0) {
        if (auto removed = keys.remove(fmt::format("{}/{}", path_, blkif::keys::kMaxIndirectSegments)); !removed) {
          return removed;
        }
      }
      for (const auto& [key, value] : blkif::backend_limit_keys(limits_)) {
        if (auto written = write(key, value); !written) return written;
      }
      return {};
    });
  }

  // Policies may be toggled while no frontend is there to negotiate: what is offered at InitWait follows them.
  void republish_changed_limits() {
    if (state_ != blkif::XenbusState::init_wait) return;
    const auto policy = read_policy();
    if (!policy) return fail_device(policy.error());
    if (*policy != policy_) note(publish_limits());
  }

  // The toolstack's other word: `params` of the same store with another size is a live resize. Another store is opened
  // at the next connect, as nothing of the old one may be in flight then.
  void follow_params() {
    const auto params = optional(read(blkif::keys::kParams));
    if (!params || *params == params_) return;
    const auto wanted = store::parse_specification(*params);
    if (!wanted) return note(write("xblk-error", wanted.error().message));
    if (!wanted->same_store_as(*store::parse_specification(params_))) return;
    if (auto resized = store_->resize(wanted->size); !resized) {
      return note(write("xblk-error", "resize: " + resized.error().message));
    }
    params_ = *params;
    if (connection_ == nullptr) return;
    // As xen_vbd_resize(): the new size, then our state once more, which is what the frontend watches.
    connection_->set_capacity(store_->geometry().capacity);
    note(write("sectors", std::to_string(store_->geometry().capacity.value())));
    note(set_state(state_));
  }

  Status open_store(const std::string& params) {
    auto store = store::open_store(params);
    if (!store) return forward(store.error(), path_ + "/params");
    store_ = std::move(*store);
    params_ = params;
    return {};
  }

  // `params` changed to another store while the old one was in use.
  Status reopen_changed_store() {
    const auto params = optional(read(blkif::keys::kParams));
    return !params || *params == params_ ? Status() : open_store(*params);
  }

  Status connect() {
    disconnect();  // idempotent, as blkback's connect path: a frontend may come back without a proper goodbye
    if (auto reopened = reopen_changed_store(); !reopened) return reopened;
    auto policy = read_policy();
    if (!policy) return tl::unexpected(policy.error());
    // Limits were published at InitWait; a policy changed since then may only lower what is accepted silently (T2),
    // so the published limits stay in force until the next InitWait.
    policy->queues = policy_.queues;
    policy->ring_page_order = policy_.ring_page_order;
    policy->indirect_segments = policy_.indirect_segments;
    policy_ = *policy;
    if (auto attached = attach_rings(); !attached) return attached;
    connection_->start(context_.runners);
    if (auto published = publish_properties(); !published) return published;
    return set_state(blkif::XenbusState::connected);
  }

  // Both ends stand at Connected, so a predecessor of ours served these rings until it ended. What it published stays
  // in force: the frontend will not read it again. Requests that it took without answering are taken again, from
  // rsp_prod.
  Status take_over() {
    auto policy = read_policy();
    if (!policy) return tl::unexpected(policy.error());
    auto own = context_.keys.read_tree(path_);
    if (!own) return forward(own.error(), path_);
    auto published = blkif::parse_backend_keys(*own);
    if (!published) return forward(published.error(), path_);
    policy_ = *policy;
    limits_ = published->limits;
    policy_.persistent = published->persistent;
    state_ = blkif::XenbusState::connected;
    if (auto attached = attach_rings(); !attached) return forward(attached.error(), "taking over live rings");
    if (auto negotiated = publish_properties(); !negotiated) return negotiated;
    connection_->start(context_.runners);
    connection_->notify_frontend();
    context_.log(fmt::format("{}: took over {} live rings", path_, statistics_->header().queues));
    return {};
  }

  // Maps what the frontend offers.
  Status attach_rings() {
    auto tree = context_.keys.read_tree(frontend_path_);
    if (!tree) return forward(tree.error(), frontend_path_);
    auto offer = blkif::parse_frontend_keys(*tree, limits_);
    if (!offer) return forward(offer.error(), frontend_path_);
    const bool readonly = optional(read(blkif::keys::kMode)).value_or("w") == "r" || store_->geometry().readonly;
    auto connection =
        Connection<P>::open(context_.env, context_.hypervisor, {frontend_, *offer, policy_, limits_, readonly}, *store_,
                            statistics_->queues());
    if (!connection) return tl::unexpected(connection.error());
    connection_ = std::move(*connection);
    halt_reported_ = false;
    shortage_reported_ = false;
    statistics_->header().generation.fetch_add(1);
    statistics_->header().queues = static_cast<std::uint32_t>(offer->queues.size());
    return {};
  }

  // A ring that stopped because of its frontend: said where the device's errors are looked for.
  void report_halted_ring() {
    const auto ring = connection_->halted_ring();
    if (!ring) return;
    halt_reported_ = true;
    const std::string message = fmt::format("queue {}: req_prod ran ahead of the ring; the ring is halted", *ring);
    context_.log(fmt::format("{}: {}", path_, message));
    note(write("xblk-error", message));
  }

  // No error, as every request is served, but slower than its policy promises.
  void report_shortage_of_mappings() {
    if (!connection_->short_of_mappings()) return;
    shortage_reported_ = true;
    context_.log(fmt::format(
        "{}: no mapping capacity left (vm.max_map_count, or the host's own limit); what cannot be mapped is copied",
        path_));
  }

  void disconnect() {
    if (connection_ == nullptr) return;
    report_troubles();  // of a connection that was too short for anybody to ask
    connection_->stop();
    connection_.reset();
    statistics_->header().queues = 0;
    static_cast<void>(context_.keys.remove(path_ + "/" + std::string(blkif::keys::kNegotiatedDirectory)));
  }

  // One transaction, so that a frontend that reads early sees all of it or none (as blkback's connect()).
  Status publish_properties() {
    const auto properties = blkif::backend_property_keys(connection_->offer());
    auto negotiated = connection_->negotiated();
    negotiated["store"] = store_->description();
    return context_.keys.transaction([&](typename P::Keys&) -> Status {
      for (const auto& [key, value] : properties) {
        if (auto written = write(key, value); !written) return written;
      }
      for (const auto& [name, value] : negotiated) {
        if (auto written = write(blkif::keys::negotiated_key(name), value); !written) return written;
      }
      return {};
    });
  }

  Status set_state(blkif::XenbusState state) {
    state_ = state;
    return write(blkif::keys::kState, std::string(blkif::xenbus_state_key(state)));
  }

  // Linux calls this xenbus_dev_fatal(): say why, close, and leave every other device alone.
  void fail_device(const Error& error) {
    context_.log(fmt::format("{}: {}", path_, error.message));
    note(write("xblk-error", error.message));
    disconnect();
    note(set_state(blkif::XenbusState::closing));
  }

  Status open_statistics() {
    const std::string devid = path_.substr(path_.rfind('/') + 1);
    if (context_.statistics_directory.empty()) {
      statistics_ = std::make_unique<StatisticsFile>(StatisticsFile::anonymous(End::back, blkif::kQueuesMax));
      return {};
    }
    const std::string file = fmt::format("{}/vbd-{}-{}.back", context_.statistics_directory, frontend_.value(), devid);
    auto created =
        StatisticsFile::create(file, End::back, frontend_.value(),
                               static_cast<std::uint32_t>(std::strtoul(devid.c_str(), nullptr, 10)), blkif::kQueuesMax);
    if (!created) return tl::unexpected(created.error());
    statistics_ = std::make_unique<StatisticsFile>(std::move(*created));
    return write(blkif::keys::kStatistics, file);
  }

  Result<blkif::BackPolicy> read_policy() {
    auto tree = context_.keys.read_tree(path_ + "/" + std::string(blkif::keys::kPolicyDirectory));
    if (!tree) {
      if (tree.error().code == ENOENT) return blkif::BackPolicy{};
      return forward(tree.error(), path_);
    }
    auto policy = blkif::parse_back_policy(*tree);
    if (!policy) return forward(policy.error(), path_);
    return policy;
  }

  [[nodiscard]] blkif::XenbusState peer_state() {
    return blkif::parse_xenbus_state(optional(context_.keys.read(frontend_path_ + "/state")));
  }
  Result<std::string> read(std::string_view key) { return context_.keys.read(fmt::format("{}/{}", path_, key)); }
  Status write(std::string_view key, const std::string& value) {
    return context_.keys.write(fmt::format("{}/{}", path_, key), value);
  }
  Result<std::uint64_t> bounded(std::string_view key, std::uint64_t max) {
    auto text = read(key);
    if (!text) return tl::unexpected(text.error());
    return blkif::keys::parse_bounded(key, *text, 0, max);
  }
  static std::optional<std::string> optional(Result<std::string> value) {
    if (!value) return std::nullopt;
    return std::move(*value);
  }
  void note(const Status& status) {
    if (!status) context_.log(fmt::format("{}: {}", path_, status.error().message));
  }

  DeviceContext<P>& context_;
  std::string path_;
  std::string frontend_path_;
  DomId frontend_{};
  std::unique_ptr<store::Store> store_;
  std::string params_;  // what store_ was opened with
  std::unique_ptr<StatisticsFile> statistics_;
  blkif::BackPolicy policy_;
  blkif::BackendLimits limits_;
  std::unique_ptr<Connection<P>> connection_;
  blkif::XenbusState state_ = blkif::XenbusState::initialising;
  bool watching_ = false;
  bool removed_ = false;
  bool halt_reported_ = false;
  bool shortage_reported_ = false;
};

}  // namespace xblk::blkback
