// open_device() of the bench-only engine libxblk-fio-vhost-user.so: the same engine as xblk's, on a vhost-user-blk
// server. The device is the server's socket; the policy option carries poll, event-index, huge-pages (0 or 1) and
// queues.
#include <charconv>

#include <fmt/format.h>

#include "ci/perf/vhost_user_blk/device.hpp"
#include "drivers/fio/device_factory.hpp"

namespace xblk::fio_engine {
namespace {

constexpr unsigned kQueuesMax = 64;

Result<unsigned> number_of(const std::string& key, const std::string& text, unsigned min, unsigned max) {
  unsigned number = 0;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (code == std::errc() && end == text.data() + text.size() && number >= min && number <= max) return number;
  return fail(EINVAL, fmt::format("{} = '{}': must be from {} to {}", key, text, min, max));
}

Status set(bool& flag, const std::string& key, const std::string& text) {
  const auto number = number_of(key, text, 0, 1);
  if (!number) return tl::unexpected(number.error());
  flag = *number == 1;
  return {};
}

Status apply(vhost_user::DeviceSettings& settings, const std::string& key, const std::string& text) {
  if (key == "poll") return set(settings.poll, key, text);
  if (key == "event-index") return set(settings.event_index, key, text);
  if (key == "huge-pages") return set(settings.huge_pages, key, text);
  if (key != "queues")
    return fail(EINVAL, fmt::format("no policy {}: there are poll, event-index, huge-pages, queues", key));
  const auto queues = number_of(key, text, 1, kQueuesMax);
  if (!queues) return tl::unexpected(queues.error());
  settings.queues = *queues;
  return {};
}

}  // namespace

Result<std::unique_ptr<blkfront::BlockDevice>> open_device(const DeviceOptions& options) {
  vhost_user::DeviceSettings settings{.socket = options.device};
  settings.buffers = options.buffer_bytes;
  settings.timeout = options.connect_timeout;
  for (const auto& [key, text] : options.policy) {
    if (auto applied = apply(settings, key, text); !applied) return tl::unexpected(applied.error());
  }
  auto device = vhost_user::Device::connect(settings);
  if (!device) return tl::unexpected(device.error());
  return std::unique_ptr<blkfront::BlockDevice>(std::move(*device));
}

}  // namespace xblk::fio_engine
