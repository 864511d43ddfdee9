// The vbd in the key store: our own directory, and what we read of the backend's. Which keys mean what is the business
// of blkif; when they are written, that of the device.
#pragma once

#include <cerrno>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "drivers/base/result.hpp"
#include "drivers/base/units.hpp"
#include "drivers/blkif/keys.hpp"
#include "drivers/blkif/negotiation.hpp"
#include "drivers/blkif/policy.hpp"
#include "drivers/blkif/xenbus_state.hpp"

namespace xblk::blkfront {

template <class Keys>
class VbdDirectory {
 public:
  VbdDirectory(Keys& keys, std::string path) : keys_(keys), path_(std::move(path)) {}
  ~VbdDirectory() {
    // An error says that there was no such watch: open() did not get that far.
    static_cast<void>(keys_.unwatch(backend_path_ + "/state", kStateToken));
    static_cast<void>(keys_.unwatch(reconnect_key(), kReconnectToken));
  }
  VbdDirectory(const VbdDirectory&) = delete;
  VbdDirectory& operator=(const VbdDirectory&) = delete;

  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] DomId backend() const { return backend_; }

  // Finds the backend, and watches its state and the request to reconnect.
  Status open() {
    auto backend = keys_.read(path_ + "/" + std::string(blkif::keys::kBackend));
    if (!backend) return forward(backend.error(), "no such vbd: " + path_);
    auto backend_id = keys_.read(path_ + "/" + std::string(blkif::keys::kBackendId));
    if (!backend_id) return forward(backend_id.error(), path_);
    auto domid = blkif::keys::parse_bounded(blkif::keys::kBackendId, *backend_id, 0, 0x7fef);
    if (!domid) return forward(domid.error(), path_);
    backend_path_ = *backend;
    backend_ = DomId(static_cast<std::uint16_t>(*domid));
    note_reconnect();
    if (auto done = keys_.watch(backend_path_ + "/state", kStateToken); !done) return done;
    return keys_.watch(reconnect_key(), kReconnectToken);
  }

  // Takes the events that are there, but no more than kEventsMax: a backend that writes keys in a loop gets a turn, not
  // the whole thread (XSA-349).
  struct Events {
    bool any = false;
    bool reconnect = false;  // somebody asks for one
  };
  [[nodiscard]] Events take_events() {
    Events events;
    for (int n = 0; n < kEventsMax; ++n) {
      const auto event = keys_.poll_watch();
      if (!event) break;
      events.any = true;
      events.reconnect |= event->token == kReconnectToken;
    }
    events.reconnect = events.reconnect && reconnect_counter() != reconnects_seen_;
    return events;
  }
  // From now on another value of the key asks for another reconnect.
  void note_reconnect() { reconnects_seen_ = reconnect_counter(); }

  // ---- the backend's directory ----

  [[nodiscard]] Result<blkif::KeyMap> read_backend() {
    auto tree = keys_.read_tree(backend_path_);
    if (!tree) return forward(tree.error(), backend_path_);
    return tree;
  }
  [[nodiscard]] blkif::XenbusState backend_state() {
    auto text = keys_.read(backend_path_ + "/state");
    return blkif::parse_xenbus_state(text ? std::optional<std::string_view>(*text) : std::nullopt);
  }
  [[nodiscard]] Result<Sectors> backend_capacity() {
    const auto text = keys_.read(backend_path_ + "/" + std::string(blkif::keys::kSectors));
    if (!text) return tl::unexpected(text.error());
    const auto sectors = blkif::keys::parse_bounded(blkif::keys::kSectors, *text, 1, blkif::kCapacityMaxSectors);
    if (!sectors) return tl::unexpected(sectors.error());
    return Sectors(*sectors);
  }
  [[nodiscard]] tl::unexpected<Error> blame_backend(const Error& error) const { return forward(error, backend_path_); }

  // ---- our own ----

  // `overrides` win over the keys of xblk-policy.
  [[nodiscard]] Result<blkif::FrontPolicy> read_policy(const blkif::PolicyMap& overrides) {
    auto tree = keys_.read_tree(path_ + "/" + std::string(blkif::keys::kPolicyDirectory));
    if (!tree && tree.error().code != ENOENT) return forward(tree.error(), path_);
    blkif::PolicyMap entries = tree ? *tree : blkif::PolicyMap{};
    for (const auto& [name, value] : overrides) entries[name] = value;
    auto policy = blkif::parse_front_policy(entries);
    if (!policy) return forward(policy.error(), path_);
    // The toolstack may say so, too. Anything but a plain yes is a no: better to copy once too often.
    if (keys_.read(path_ + "/" + std::string(blkif::keys::kTrusted)).value_or("1") != "1") policy->trusted = false;
    return policy;
  }

  Status write(std::string_view key, const std::string& value) {
    return keys_.write(fmt::format("{}/{}", path_, key), value);
  }
  Status write_state(blkif::XenbusState state) {
    return write(blkif::keys::kState, std::string(blkif::xenbus_state_key(state)));
  }
  Status clear_error() { return keys_.remove(path_ + "/" + kError); }
  void write_error(const std::string& line) { static_cast<void>(write(kError, line)); }

  // Stale keys of an earlier connection go in the same transaction: Linux blkfront leaves them, and backends have
  // mapped stale grants for it (T3).
  Status write_offer(const blkif::FrontendOffer& offer) {
    return keys_.transaction([&](Keys& keys) -> Status {
      auto existing = keys.read_tree(path_);
      if (!existing) return tl::unexpected(existing.error());
      for (const auto& stale : blkif::stale_frontend_keys(offer, *existing)) {
        if (auto removed = keys.remove(path_ + "/" + stale); !removed) return removed;
      }
      for (const auto& [key, value] : blkif::frontend_keys(offer)) {
        if (auto written = keys.write(path_ + "/" + key, value); !written) return written;
      }
      return {};
    });
  }

  Status write_negotiated(const blkif::PolicyMap& result) {
    return keys_.transaction([&](Keys& keys) -> Status {
      for (const auto& [name, value] : result) {
        if (auto written = keys.write(path_ + "/" + blkif::keys::negotiated_key(name), value); !written) return written;
      }
      return {};
    });
  }
  void remove_negotiated() {
    static_cast<void>(keys_.remove(path_ + "/" + std::string(blkif::keys::kNegotiatedDirectory)));
  }

 private:
  static constexpr int kEventsMax = 1024;
  static constexpr const char* kStateToken = "backend-state";
  static constexpr const char* kReconnectToken = "reconnect";
  static constexpr const char* kError = "xblk-error";

  [[nodiscard]] std::string reconnect_key() const { return path_ + "/" + std::string(blkif::keys::kPolicyReconnect); }
  [[nodiscard]] std::string reconnect_counter() { return keys_.read(reconnect_key()).value_or(""); }

  Keys& keys_;
  const std::string path_;
  std::string backend_path_;
  DomId backend_{};
  std::string reconnects_seen_;
};

}  // namespace xblk::blkfront
