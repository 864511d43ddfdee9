// XenstoreService: the real xenstored as the xenstore of the emulated hypervisor. It supervises the daemon, is the
// hypervisor behind its shim, and gives each guest its /dev/xen/xenbus.
//
// One thread of its own runs all sockets (PollLoop): xenstored asks its hypervisor questions in the middle of answering
// a client, so whoever talks to it must not be the one who answers. The public functions belong to one owner thread and
// block until done; failure() may be called from anywhere.
#pragma once

#include <sys/types.h>

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "drivers/base/result.hpp"
#include "drivers/base/unique_fd.hpp"
#include "drivers/base/units.hpp"
#include "drivers/env/real/memory.hpp"
#include "drivers/hypervisor/xenstored/poll_loop.hpp"
#include "drivers/hypervisor/xenstored/shim_server.hpp"
#include "drivers/hypervisor/xenstored/xenbus_device.hpp"
#include "drivers/hypervisor/xenstored/xenstored_process.hpp"
#include "drivers/keystore/client.hpp"

namespace xblk::hypervisor {

class XenstoreService {
 public:
  struct Options {
    std::string directory;       // created with mode 0700; holds the sockets and xenstored.log
    std::string shim_path;       // empty: beside the executable or in the library directory of its installation
    std::string xenstored_path;  // empty: where Debian 12 has it
  };

  static Result<std::unique_ptr<XenstoreService>> start(Options options);
  ~XenstoreService();  // stop()

  // Where dom0's clients connect (XENSTORED_PATH), and where those of a guest do.
  [[nodiscard]] std::string socket_path() const { return options_.directory + "/socket"; }
  [[nodiscard]] std::string xenbus_path(DomId domain) const;

  // A new domain: its ring page, known to xenstored (@introduceDomain fires), and its xenbus socket.
  Status introduce(DomId domain);
  // The domain is destroyed: its clients are disconnected, its nodes removed, @releaseDomain fires.
  Status release(DomId domain);
  // The domain has shut down but is not destroyed yet: @releaseDomain fires. Unknown domains are ignored.
  void mark_shutdown(DomId domain);

  // Set when xenstored has ended although nobody stopped it: how, in one line. Guests' clients are disconnected then.
  [[nodiscard]] std::optional<std::string> failure() const;
  [[nodiscard]] int failure_fd() const { return failure_event_.get(); }  // readable from then on

  void stop();  // ends xenstored and everything that hangs on it; idempotent
  [[nodiscard]] pid_t xenstored_pid() const { return pid_; }

 private:
  struct Domain {
    env::RealMemory ring;
    DomainState state = DomainState::kRunning;
    std::unique_ptr<XenbusDevice> device;  // null until xenstored knows the domain
  };

  XenstoreService(Options options, std::unique_ptr<PollLoop> loop, UniqueFd failure_event);
  Status spawn();
  Status connect();
  void on_loop(const std::function<void()>& task);
  Status create_domain(DomId domain);
  Status create_device(DomId domain);
  ShimServer::Host host_of_shim();
  void on_xenstored_end();

  Options options_;
  std::unique_ptr<PollLoop> loop_;
  UniqueFd failure_event_;
  mutable std::mutex failure_mutex_;
  std::optional<std::string> failure_;
  std::optional<keystore::Client> control_;  // the owner's connection as dom0
  pid_t pid_ = -1;

  // On the loop's thread only. Destroyed in reverse: devices before the server they notify.
  std::optional<XenstoredProcess> process_;
  std::unique_ptr<ShimServer> shim_;
  std::map<DomId, Domain> domains_;

  std::thread thread_;
};

}  // namespace xblk::hypervisor
