// The devices of this process, each shared by the fio jobs that name it: one fio process is one guest, and a guest has
// one frontend per virtual disk, however many jobs use it.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "drivers/base/result.hpp"
#include "drivers/blkfront/block_device.hpp"
#include "drivers/fio/device_factory.hpp"
#include "drivers/fio/snapshots.hpp"

namespace xblk::fio_engine {

struct JobOptions {
  DeviceOptions device;
  std::string snapshots;  // file; empty: none

  friend bool operator==(const JobOptions&, const JobOptions&) = default;
};

class SharedDevice {
 public:
  SharedDevice(JobOptions options, std::unique_ptr<blkfront::BlockDevice> device);

  [[nodiscard]] blkfront::BlockDevice& device() { return *device_; }
  [[nodiscard]] const JobOptions& options() const { return options_; }
  // What fio counts begins now: the first job that says so takes the ramp_end snapshot, the others' calls do nothing.
  Status begin_measuring();
  Status take_snapshot(Phase phase) { return append_snapshot(snapshots_, phase); }

 private:
  JobOptions options_;
  SnapshotSource snapshots_;
  std::mutex measuring_mutex_;
  bool measuring_ = false;
  std::unique_ptr<blkfront::BlockDevice> device_;
};

class Registry {
 public:
  using Opener = Result<std::unique_ptr<blkfront::BlockDevice>> (*)(const DeviceOptions&);
  explicit Registry(Opener opener) : opener_(opener) {}

  struct Membership {
    SharedDevice* device = nullptr;
    unsigned number = 0;  // of this job among all that ever joined the device; spreads jobs over queues
  };
  // Opens the device for its first job. EINVAL when the jobs of one device disagree about its options.
  Result<Membership> join(const JobOptions& options);
  // After its last job: end snapshot, orderly disconnect. Errors are of those; the device is gone in any case.
  Status leave(SharedDevice& device);

 private:
  struct Entry {
    std::unique_ptr<SharedDevice> device;
    unsigned users = 0;
    unsigned joined = 0;
  };
  Opener opener_;
  // Held while a device connects or disconnects: a job that joins then must wait, not open the device a second time.
  std::mutex mutex_;
  std::map<std::string, Entry> entries_;
};

}  // namespace xblk::fio_engine
