#include "ci/perf/vhost_user_blk/device.hpp"

#include <linux/virtio_blk.h>
#include <linux/virtio_config.h>

#include <cstddef>
#include <cstring>

#include <fmt/format.h>

namespace xblk::vhost_user {
namespace {

constexpr std::uint64_t bit(unsigned number) {
  return UINT64_C(1) << number;
}

constexpr std::size_t whole_pages(std::size_t bytes) {
  return (bytes + kPageSize - 1) / kPageSize * kPageSize;
}

// The device's configuration up to what an older server knows: one that is asked for more answers nothing.
constexpr std::uint32_t kConfigBytes = offsetof(virtio_blk_config, max_secure_erase_sectors);
struct ConfigMessage {
  std::uint32_t offset = 0;
  std::uint32_t size = kConfigBytes;
  std::uint32_t flags = 0;
  std::array<std::byte, kConfigBytes> content{};
};

}  // namespace

// One fio job's view of one queue.
class Device::QueueChannel final : public blkfront::Channel {
 public:
  explicit QueueChannel(OwnedQueue& owned) : owned_(owned) {}
  ~QueueChannel() override { owned_.taken = false; }
  Status submit(const blkfront::Io& io) override { return owned_.queue.submit(io); }
  void commit() override { owned_.queue.commit(); }
  unsigned reap(unsigned min, std::span<blkfront::Completion> into, Nanos timeout) override {
    return owned_.queue.reap(min, into, timeout);
  }

 private:
  OwnedQueue& owned_;
};

Result<std::unique_ptr<Device>> Device::connect(const DeviceSettings& settings) {
  auto connection = Connection::open(settings.socket, settings.timeout);
  if (!connection) return tl::unexpected(connection.error());
  const std::size_t needed = settings.queues * queue_memory_bytes() + whole_pages(settings.buffers.value());
  auto memory = SharedMemory::create(Bytes(needed), settings.huge_pages);
  if (!memory) return forward(memory.error(), settings.socket);
  std::unique_ptr<Device> device(new Device(std::move(*connection), settings, std::move(*memory)));
  for (const auto step : {&Device::negotiate, &Device::read_geometry, &Device::share_memory, &Device::start_queues}) {
    if (auto done = (device.get()->*step)(); !done) return tl::unexpected(done.error());
  }
  device->connected_ = true;
  return device;
}

Device::~Device() {
  static_cast<void>(disconnect());
}

Status Device::complain(int code, const std::string& what) const {
  return fail(code, fmt::format("{}: {}", connection_.name(), what));
}

Status Device::negotiate() {
  if (auto owned = connection_.set(Request::set_owner); !owned) return owned;
  const auto offered = connection_.get(Request::get_features);
  if (!offered) return tl::unexpected(offered.error());
  if ((*offered & bit(VIRTIO_F_VERSION_1)) == 0) return complain(EPROTO, "the server offers no VIRTIO_F_VERSION_1");
  if ((*offered & kProtocolFeatures) == 0) return complain(EPROTO, "the server offers no protocol features");
  if (auto agreed = negotiate_protocol(); !agreed) return agreed;
  std::uint64_t wanted = bit(VIRTIO_F_VERSION_1) | kProtocolFeatures | bit(VIRTIO_BLK_F_FLUSH) |
                         bit(VIRTIO_BLK_F_DISCARD) | bit(VIRTIO_BLK_F_BLK_SIZE) | bit(VIRTIO_BLK_F_RO) |
                         bit(VIRTIO_BLK_F_MQ);
  if (settings_.event_index) wanted |= bit(VIRTIO_RING_F_EVENT_IDX);
  features_ = *offered & wanted;
  return connection_.set(Request::set_features, payload(features_));
}

Status Device::negotiate_protocol() {
  const auto offered = connection_.get(Request::get_protocol_features);
  if (!offered) return tl::unexpected(offered.error());
  if ((*offered & kConfig) == 0) return complain(EPROTO, "the server cannot be asked for the device's configuration");
  const std::uint64_t agreed = *offered & (kMultiQueue | kReplyAck | kConfig);
  if (auto set = connection_.set(Request::set_protocol_features, payload(agreed)); !set) return set;
  if ((agreed & kReplyAck) != 0) connection_.use_acknowledgements();
  if ((agreed & kMultiQueue) == 0) return {};
  const auto queues = connection_.get(Request::get_queue_count);
  if (!queues) return tl::unexpected(queues.error());
  if (*queues >= settings_.queues) return {};
  return complain(EINVAL, fmt::format("the server has {} queues, not {}", *queues, settings_.queues));
}

Status Device::read_geometry() {
  ConfigMessage message;
  if (auto got = connection_.exchange(Request::get_config, std::as_writable_bytes(std::span(&message, 1))); !got) {
    return got;
  }
  virtio_blk_config config{};
  std::memcpy(&config, message.content.data(), kConfigBytes);
  if (config.capacity == 0) return complain(EPROTO, "the server says that the device has no sectors");
  info_.capacity = Sectors(config.capacity);
  if ((features_ & bit(VIRTIO_BLK_F_BLK_SIZE)) != 0) info_.sector_size = config.blk_size;
  info_.readonly = (features_ & bit(VIRTIO_BLK_F_RO)) != 0;
  info_.negotiated.queues = static_cast<std::uint16_t>(settings_.queues);
  info_.negotiated.flush = (features_ & bit(VIRTIO_BLK_F_FLUSH)) != 0;
  info_.negotiated.discard = (features_ & bit(VIRTIO_BLK_F_DISCARD)) != 0;
  if (info_.sector_size == 0 || info_.sector_size % kSectorSize != 0) {
    return complain(EPROTO, fmt::format("the server says that a block has {} bytes", info_.sector_size));
  }
  return {};
}

// One region, and the guest's addresses are this process' own.
Status Device::share_memory() {
  MemoryTable table;
  table.guest_address = table.user_address = reinterpret_cast<std::uintptr_t>(memory_.base());
  table.size = memory_.size();
  return connection_.set(Request::set_memory_table, payload(table), memory_.fd());
}

Status Device::start_queues() {
  for (unsigned index = 0; index < settings_.queues; ++index) {
    auto kick = env::RealDoorbell::create();
    if (!kick) return tl::unexpected(kick.error());
    auto call = env::RealDoorbell::create();
    if (!call) return tl::unexpected(call.error());
    std::byte* const memory = memory_.base() + index * queue_memory_bytes();
    queues_.push_back(std::unique_ptr<OwnedQueue>(new OwnedQueue{
        Queue(memory, std::move(*kick), std::move(*call), {event_index(), settings_.poll, connection_.socket()})}));
    if (auto started = start_queue(index); !started) return started;
  }
  return {};
}

Status Device::start_queue(unsigned index) {
  const Queue& queue = queues_[index]->queue;
  const VringState size{index, kQueueLayout.size};
  if (auto set = connection_.set(Request::set_vring_size, payload(size)); !set) return set;
  const VringState base{index, 0};
  if (auto set = connection_.set(Request::set_vring_base, payload(base)); !set) return set;
  VringAddress address{.index = index};
  address.descriptors = reinterpret_cast<std::uintptr_t>(queue.ring().descriptor_area());
  address.available = reinterpret_cast<std::uintptr_t>(queue.ring().driver_area());
  address.used = reinterpret_cast<std::uintptr_t>(queue.ring().device_area());
  if (auto set = connection_.set(Request::set_vring_address, payload(address)); !set) return set;
  const std::uint64_t number = index;
  if (auto set = connection_.set(Request::set_vring_call, payload(number), queue.call_fd()); !set) return set;
  if (auto set = connection_.set(Request::set_vring_kick, payload(number), queue.kick_fd()); !set) return set;
  const VringState enable{index, 1};
  return connection_.set(Request::set_vring_enable, payload(enable));
}

bool Device::event_index() const {
  return (features_ & bit(VIRTIO_RING_F_EVENT_IDX)) != 0;
}

Result<std::span<std::byte>> Device::allocate_buffers(Bytes size) {
  const std::size_t bytes = whole_pages(size.value());
  const std::size_t begin = settings_.queues * queue_memory_bytes() + buffers_used_.fetch_add(bytes);
  if (begin + bytes > memory_.size()) {
    return fail(ENOMEM, fmt::format("{}: {} bytes of buffers, more than was announced", connection_.name(), bytes));
  }
  return std::span(memory_.base() + begin, bytes);
}

Result<std::unique_ptr<blkfront::Channel>> Device::open_channel(unsigned number) {
  OwnedQueue& owned = *queues_[number % queues_.size()];
  if (owned.taken.exchange(true)) {
    return fail(EBUSY, fmt::format("{}: more jobs than the {} queues of the device: add queues=N to xblk_policy",
                                   connection_.name(), queues_.size()));
  }
  return std::unique_ptr<blkfront::Channel>(new QueueChannel(owned));
}

// GET_VRING_BASE stops a queue: the server touches neither rings nor buffers once it has answered.
Status Device::disconnect() {
  if (!std::exchange(connected_, false)) return {};
  for (unsigned index = 0; index < queues_.size(); ++index) {
    VringState state{index, 0};
    auto stopped = connection_.exchange(Request::get_vring_base, std::as_writable_bytes(std::span(&state, 1)));
    if (!stopped) return stopped;
  }
  return {};
}

}  // namespace xblk::vhost_user
