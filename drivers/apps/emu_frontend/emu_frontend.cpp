#include "drivers/apps/emu_frontend/emu_frontend.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "drivers/blkif/keys.hpp"

namespace xblk::apps {
namespace {

// Bounds every sleep. News come by descriptors, also that of the host's death; what has none is a ring that its backend
// broke, of which the callers know already.
constexpr Nanos kLookAround = seconds(1);
constexpr Nanos kCloseTimeout = seconds(10);

Result<blkif::FrontPolicy> read_policy(keystore::Client& keys, const fio_engine::DeviceOptions& options) {
  auto entries = keys.read_tree(options.device + "/" + std::string(blkif::keys::kPolicyDirectory));
  if (!entries && entries.error().code != ENOENT) return tl::unexpected(entries.error());
  blkif::PolicyMap policy = entries ? *entries : blkif::PolicyMap{};
  for (const auto& [name, value] : options.policy) policy[name] = value;
  return blkif::parse_front_policy(policy);
}

// Memory of the guest: the buffers that fio asked for, and per queue the ring and a full pool of persistent grants
// (slots x (segments + indirect pages)). The memory is not populated before it is used.
std::uint32_t pages_needed(const blkif::FrontPolicy& policy, Bytes buffers) {
  const std::uint64_t ring_pages = 1u << policy.ring_page_order;
  const std::uint64_t slots = blkif::ring_slots(static_cast<std::uint32_t>(ring_pages), blkif::kNativeAbi);
  const std::uint64_t segments = std::max<std::uint64_t>(policy.indirect_segments, blkif::kDirectSegmentsMax);
  const std::uint64_t pool = slots * (segments + 1);
  constexpr std::uint64_t kSlack = 256;  // alignment of blocks, and the pool's growth in steps of 32
  return static_cast<std::uint32_t>(buffers.value() / kPageSize + policy.queues * (ring_pages + pool + 32) + kSlack);
}

}  // namespace

Result<std::unique_ptr<EmuFrontend>> EmuFrontend::open(const fio_engine::DeviceOptions& options) {
  auto keys = keystore::Client::connect(options.xenstore_socket);
  if (!keys) return forward(keys.error(), "xenstore of the guest");
  auto policy = read_policy(*keys, options);
  if (!policy) return forward(policy.error(), options.device);
  auto guest = hypervisor::emu::EmuGuest::attach(options.hypervisor_socket, options.domid,
                                                 pages_needed(*policy, options.buffer_bytes));
  if (!guest) return tl::unexpected(guest.error());
  auto statistics =
      options.statistics_path.empty()
          ? Result<StatisticsFile>(StatisticsFile::anonymous(End::front, blkif::kQueuesMax))
          : StatisticsFile::create(options.statistics_path, End::front, options.domid.value(), 0, blkif::kQueuesMax);
  if (!statistics) return tl::unexpected(statistics.error());
  std::unique_ptr<EmuFrontend> frontend(
      new EmuFrontend(std::move(*guest), std::move(*keys), options, std::move(*statistics)));
  if (auto connected = frontend->connect(); !connected) return tl::unexpected(connected.error());
  frontend->control_ = std::thread([f = frontend.get()] { f->control_loop(); });
  return frontend;
}

EmuFrontend::EmuFrontend(std::unique_ptr<hypervisor::emu::EmuGuest> guest, keystore::Client keys,
                         const fio_engine::DeviceOptions& options, StatisticsFile statistics)
    : guest_(std::move(guest)), keys_(std::move(keys)), options_(options), waits_(env_) {
  device_ = std::make_unique<blkfront::Device<EmuPlatform>>(
      env_, *guest_, keys_, blkfront::Device<EmuPlatform>::Options{options.device, options.policy},
      std::move(statistics));
}

EmuFrontend::~EmuFrontend() {
  static_cast<void>(disconnect());
}

Status EmuFrontend::connect() {
  if (auto started = device_->start(); !started) return started;
  if (auto added = waits_.add(keys_.fd(), 0); !added) return added;
  if (auto added = waits_.add(guest_->host_fd(), 1); !added) return added;
  const Instant deadline = env_.now() + options_.connect_timeout;
  for (;;) {
    device_->turn();
    if (device_->connected()) return {};
    // Closed without a failure of ours: the backend refused, and says why.
    if (!device_->failure().empty() || device_->closed()) return fail(EPROTO, why_not_connected());
    if (env_.now() >= deadline) return fail(ETIMEDOUT, why_not_connected());
    if (!wait_for_news()) return fail(ENODEV, "the host of the emulation is gone");
  }
}

bool EmuFrontend::wait_for_news() {
  std::vector<std::uint64_t> ready;
  waits_.wait(env_.now() + kLookAround, ready);
  return !guest_->host_gone();
}

void EmuFrontend::control_loop() {
  while (!device_->closed()) {
    if (!wait_for_news()) {
      device_->backend_gone();
      break;
    }
    device_->turn();
  }
  closed_ = true;
}

Status EmuFrontend::disconnect() {
  if (!control_.joinable()) return {};
  static_cast<void>(device_->disconnect());
  const Instant deadline = env_.now() + kCloseTimeout;
  waits_.wake();
  while (!closed_ && env_.now() < deadline) env_.sleep(millis(1));
  const bool orderly = closed_;
  if (!orderly) device_->abandon();
  waits_.wake();
  control_.join();
  if (!orderly) return fail(ETIMEDOUT, fmt::format("{}: the backend did not close within 10 s", options_.device));
  return {};
}

std::string EmuFrontend::why_not_connected() {
  const std::string backend = keys_.read(options_.device + "/backend").value_or("?");
  std::string why = fmt::format("{}: not connected: frontend state {}, backend state {}", options_.device,
                                blkif::to_string(device_->state()), keys_.read(backend + "/state").value_or("missing"));
  if (!device_->failure().empty()) why += "; " + device_->failure();
  if (const auto said = keys_.read(backend + "/xblk-error")) why += "; backend: " + *said;
  return why;
}

}  // namespace xblk::apps

namespace xblk::fio_engine {

Result<std::unique_ptr<blkfront::BlockDevice>> open_device(const DeviceOptions& options) {
  auto frontend = apps::EmuFrontend::open(options);
  if (!frontend) return tl::unexpected(frontend.error());
  return std::unique_ptr<blkfront::BlockDevice>(std::move(*frontend));
}

}  // namespace xblk::fio_engine
