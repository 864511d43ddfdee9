#include "drivers/fio/registry.hpp"

#include <fmt/format.h>
#include <utility>

#include "drivers/base/check.hpp"

namespace xblk::fio_engine {
namespace {

std::string key_of(const DeviceOptions& options) {
  return fmt::format("{}\n{}\n{}\n{}", options.hypervisor_socket, options.domid.value(), options.xenstore_socket,
                     options.device);
}

// The memory needed is a sum over the jobs and may be counted anew; all else describes the one device.
bool agree(const JobOptions& a, JobOptions b) {
  b.device.buffer_bytes = a.device.buffer_bytes;
  return a == b;
}

}  // namespace

SharedDevice::SharedDevice(JobOptions options, std::unique_ptr<blkfront::BlockDevice> device)
    : options_(std::move(options)),
      snapshots_{options_.snapshots, options_.device.device, options_.device.domid, device->statistics_path(),
                 device->backend_statistics_path()},
      device_(std::move(device)) {}

Status SharedDevice::begin_measuring() {
  // A lock, not a flag: a job that comes second must not issue counted I/O while the first still takes the snapshot.
  const std::lock_guard lock(measuring_mutex_);
  if (std::exchange(measuring_, true)) return {};
  return take_snapshot(Phase::ramp_end);
}

Result<Registry::Membership> Registry::join(const JobOptions& options) {
  const std::string key = key_of(options.device);
  const std::lock_guard lock(mutex_);
  auto found = entries_.find(key);
  if (found == entries_.end()) {
    auto device = opener_(options.device);
    if (!device) return forward(device.error(), options.device.device);
    Entry entry{std::make_unique<SharedDevice>(options, std::move(*device))};
    if (auto status = entry.device->take_snapshot(Phase::start); !status) return tl::unexpected(status.error());
    found = entries_.emplace(key, std::move(entry)).first;
  } else if (!agree(found->second.device->options(), options)) {
    return fail(EINVAL, fmt::format("{}: jobs that share a device must give the same xblk_policy, xblk_snapshots and "
                                    "xblk_statistics",
                                    options.device.device));
  }
  Entry& entry = found->second;
  ++entry.users;
  return Membership{entry.device.get(), entry.joined++};
}

Status Registry::leave(SharedDevice& device) {
  const std::lock_guard lock(mutex_);
  const auto found = entries_.find(key_of(device.options().device));
  XBLK_CHECK(found != entries_.end() && found->second.device.get() == &device, "only members leave");
  if (--found->second.users > 0) return {};
  Status end = device.take_snapshot(Phase::end);
  Status disconnected = device.device().disconnect();
  entries_.erase(found);
  return disconnected ? end : disconnected;
}

}  // namespace xblk::fio_engine
