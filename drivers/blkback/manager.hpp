// All backend devices of a host: what xenbus_backend is in a kernel. It watches the backend directory, probes devices
// that appear, lets each one act on its frontend's state, and forgets those that are removed.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "drivers/blkback/device.hpp"
#include "drivers/platform/concepts.hpp"

namespace xblk::blkback {

inline constexpr std::string_view kBackendRoot = "/local/domain/0/backend/xblk";

template <platform::Platform P>
class Manager {
 public:
  explicit Manager(DeviceContext<P>& context) : context_(context) {}

  // Devices that are there already are probed too: a predecessor of this driver may have served them.
  Status start() {
    if (auto watched = context_.keys.watch(std::string(kBackendRoot), kRootToken); !watched) return watched;
    for (const auto& domain : context_.keys.list(std::string(kBackendRoot)).value_or(Names{})) {
      const std::string directory = fmt::format("{}/{}", kBackendRoot, domain);
      for (const auto& devid : context_.keys.list(directory).value_or(Names{})) evaluate(directory + "/" + devid);
    }
    return {};
  }

  // The driver ends, its devices do not: their rings and keys stay for a successor's start().
  void abandon() {
    for (auto& [path, device] : devices_) device->abandon();
    devices_.clear();
    static_cast<void>(context_.keys.unwatch(std::string(kBackendRoot), kRootToken));
  }

  // Handles the watch events that are there. They are merged per device before anything acts: a frontend that rewrites
  // its state a million times costs the events, not a million evaluations; and no more of them than kEventsMax before
  // the other devices get their turn (XSA-349).
  void turn() {
    std::set<std::string> touched;
    for (int n = 0; n < kEventsMax; ++n) {
      const auto event = context_.keys.poll_watch();
      if (!event) break;
      const std::string path = event->token == kRootToken ? device_of(event->path) : event->token;
      if (!path.empty()) touched.insert(path);
    }
    for (const auto& path : touched) evaluate(path);
    for (auto& [path, device] : devices_) device->report_troubles();
  }

  // Hypervisor's word that a frontend's domain or process died.
  void frontend_gone(DomId domain) {
    for (auto& [path, device] : devices_) {
      if (device->frontend() == domain) device->frontend_gone();
    }
  }

  [[nodiscard]] std::map<std::string, std::unique_ptr<Device<P>>>& devices() { return devices_; }

 private:
  using Names = std::vector<std::string>;

  static constexpr const char* kRootToken = "xblk-backend-root";
  static constexpr int kEventsMax = 4096;

  void evaluate(const std::string& path) {
    auto device = devices_.find(path);
    if (device == devices_.end()) {
      if (!context_.keys.read(path + "/frontend")) return;  // gone again, or not complete yet: another event will come
      device = devices_.emplace(path, std::make_unique<Device<P>>(context_, path)).first;
      if (auto probed = device->second->probe(); !probed) {
        context_.log(fmt::format("cannot serve {}: {}", path, probed.error().message));
        static_cast<void>(context_.keys.write(path + "/xblk-error", probed.error().message));
        devices_.erase(device);
        return;
      }
    }
    device->second->evaluate();
    if (device->second->removed()) devices_.erase(device);
  }

  // The device's directory, for the keys below it that the toolstack changes; empty for all others, among them the many
  // that the device writes itself.
  static std::string device_of(std::string_view path) {
    if (!path.starts_with(kBackendRoot)) return {};
    const std::string_view below = path.substr(kBackendRoot.size());
    const std::size_t devid = below.find('/', 1);  // /<domid>/<devid>[/key]
    if (devid == std::string_view::npos) return {};
    const std::size_t key = below.find('/', devid + 1);
    const std::string_view name = key == std::string_view::npos ? std::string_view() : below.substr(key + 1);
    const bool toolstack_key = name.empty() || name == "frontend" || name == "online" || name == "params" ||
                               name.starts_with(blkif::keys::kPolicyDirectory);
    if (!toolstack_key) return {};
    return std::string(path.substr(0, kBackendRoot.size() + std::min(key, below.size())));
  }

  DeviceContext<P>& context_;
  std::map<std::string, std::unique_ptr<Device<P>>> devices_;
};

}  // namespace xblk::blkback
