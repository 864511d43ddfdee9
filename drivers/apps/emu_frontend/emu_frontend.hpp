// The reference frontend on the emulation: this process becomes a guest and connects its vbd. One thread of its own
// carries the life cycle (key-store watches, loss of the host); I/O runs on the callers' threads.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "drivers/apps/emu_platform.hpp"
#include "drivers/blkfront/block_device.hpp"
#include "drivers/blkfront/device.hpp"
#include "drivers/fio/device_factory.hpp"

namespace xblk::apps {

class EmuFrontend final : public blkfront::BlockDevice {
 public:
  // Returns connected, or says in one line which step failed and what the backend said.
  static Result<std::unique_ptr<EmuFrontend>> open(const fio_engine::DeviceOptions& options);
  ~EmuFrontend() override;

  [[nodiscard]] blkfront::DeviceInfo info() const override { return device_->info(); }
  Result<std::span<std::byte>> allocate_buffers(Bytes size) override { return device_->allocate_buffers(size); }
  void free_buffers(std::span<std::byte> block) override { device_->free_buffers(block); }
  Result<std::unique_ptr<blkfront::Channel>> open_channel(unsigned number) override {
    return device_->open_channel(number);
  }
  [[nodiscard]] std::string statistics_path() const override { return device_->statistics_path(); }
  [[nodiscard]] std::string backend_statistics_path() const override { return device_->backend_statistics_path(); }
  Status disconnect() override;

 private:
  EmuFrontend(std::unique_ptr<hypervisor::emu::EmuGuest> guest, keystore::Client keys,
              const fio_engine::DeviceOptions& options, StatisticsFile statistics);
  Status connect();
  void control_loop();
  // Waits until something may have changed; false when the host is gone.
  bool wait_for_news();
  std::string why_not_connected();

  env::RealEnv env_;
  std::unique_ptr<hypervisor::emu::EmuGuest> guest_;
  keystore::Client keys_;
  fio_engine::DeviceOptions options_;
  std::unique_ptr<blkfront::Device<EmuPlatform>> device_;
  env::RealEnv::WaitSet waits_;
  std::thread control_;
  std::atomic<bool> closed_{false};
};

}  // namespace xblk::apps
