// A vhost-user-blk server's device: set up over the control socket, used through its virtqueues.
#pragma once

#include <atomic>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "ci/perf/vhost_user_blk/connection.hpp"
#include "ci/perf/vhost_user_blk/queue.hpp"
#include "ci/perf/vhost_user_blk/shared_memory.hpp"
#include "drivers/blkfront/block_device.hpp"

namespace xblk::vhost_user {

struct DeviceSettings {
  std::string socket;
  unsigned queues = 1;      // asked for; as many jobs can share the device
  bool poll = true;         // the used ring, or wait for the call eventfd
  bool event_index = true;  // use event indexes if the server offers them, else the flags of the rings
  bool huge_pages = false;
  Bytes buffers{};  // of all jobs together
  Nanos timeout = seconds(10);

  friend bool operator==(const DeviceSettings&, const DeviceSettings&) = default;
};

class Device final : public blkfront::BlockDevice {
 public:
  static Result<std::unique_ptr<Device>> connect(const DeviceSettings& settings);
  ~Device() override;

  [[nodiscard]] blkfront::DeviceInfo info() const override { return info_; }
  [[nodiscard]] bool event_index() const;
  Result<std::span<std::byte>> allocate_buffers(Bytes size) override;
  // The memory is asked for once per job and lives as long as the device.
  void free_buffers(std::span<std::byte>) override {}
  // EBUSY: each queue belongs to one channel.
  Result<std::unique_ptr<blkfront::Channel>> open_channel(unsigned number) override;
  [[nodiscard]] std::string statistics_path() const override { return {}; }
  [[nodiscard]] std::string backend_statistics_path() const override { return {}; }
  Status disconnect() override;

 private:
  class QueueChannel;
  struct OwnedQueue {
    Queue queue;
    std::atomic<bool> taken{false};
  };

  Device(Connection connection, const DeviceSettings& settings, SharedMemory memory)
      : connection_(std::move(connection)), settings_(settings), memory_(std::move(memory)) {}
  Status negotiate();
  Status negotiate_protocol();
  Status read_geometry();
  Status share_memory();
  Status start_queues();
  Status start_queue(unsigned index);
  [[nodiscard]] Status complain(int code, const std::string& what) const;

  Connection connection_;
  const DeviceSettings settings_;
  SharedMemory memory_;
  std::uint64_t features_ = 0;  // in force
  blkfront::DeviceInfo info_;
  std::vector<std::unique_ptr<OwnedQueue>> queues_;
  std::atomic<std::size_t> buffers_used_{0};
  bool connected_ = false;
};

}  // namespace xblk::vhost_user
