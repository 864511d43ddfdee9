// The host of the emulation: hypervisor, xenstored, and dom0 with its backends, in one process.
//
// Threads: this control loop (guests, key store, signals), one thread of the xenstored service, and the workers that
// step rings. Guests are other processes; they can end, flood or lie, and cost only themselves.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "drivers/apps/emu_platform.hpp"
#include "drivers/blkback/manager.hpp"
#include "drivers/blkback/worker.hpp"
#include "drivers/hypervisor/emu/guest_server.hpp"
#include "drivers/hypervisor/hypervisor.hpp"
#include "drivers/hypervisor/xenstored/xenstore_service.hpp"

namespace xblk::apps {

struct HostOptions {
  std::string directory;
  std::uint16_t guests = 1;
  unsigned workers = 1;
  hypervisor::GrantLocks grant_locks = hypervisor::GrantLocks::split;
  std::uint32_t guest_memory_mib = 1024;                     // at most, per guest
  std::uint32_t grant_frames = hypervisor::kMaxGrantFrames;  // per guest
  std::uint32_t mappings_max = 0;  // of guests' pages by the backends; 0: as many as the process may have
};

class EmuHost {
 public:
  // Everything up, or one line about what is in the way.
  static Result<std::unique_ptr<EmuHost>> start(const HostOptions& options);
  ~EmuHost();

  // Until `signal_fd` (a signalfd) brings a signal to end, or something the host cannot live without has died. SIGUSR1
  // starts the backend drivers anew.
  Status run(int signal_fd);

 private:
  explicit EmuHost(const HostOptions& options);
  Status open_directory();
  Status start_xenstore();
  Status introduce_guests();
  Status start_workers();
  Status start_backends();
  Status restart_backends();
  Status listen();
  Status write_description();

  HostOptions options_;
  env::RealEnv env_;
  hypervisor::Hypervisor<env::RealEnv> hypervisor_;
  hypervisor::Dom0<env::RealEnv> dom0_;
  std::unique_ptr<hypervisor::XenstoreService> xenstore_;
  std::unique_ptr<keystore::Client> keys_;
  std::vector<std::unique_ptr<blkback::Worker<env::RealEnv>>> workers_;
  std::unique_ptr<blkback::DeviceContext<EmuPlatform>> context_;
  std::unique_ptr<blkback::Manager<EmuPlatform>> manager_;
  std::unique_ptr<hypervisor::emu::GuestServer> guests_;
  std::atomic<bool> stop_workers_{false};
  std::vector<std::thread> threads_;
};

}  // namespace xblk::apps
