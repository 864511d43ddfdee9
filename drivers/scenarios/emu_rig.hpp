// The whole system in real time: a host process with the real xenstored, vbds attached as a toolstack would, and this
// process as a guest.
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>

#include "drivers/apps/emu_frontend/emu_frontend.hpp"
#include "drivers/blkif/policy.hpp"
#include "drivers/keystore/client.hpp"

namespace xblk::scenarios {

struct EmuVbd {
  std::string store = "ram:4MiB";
  blkif::PolicyMap front_policy;
  blkif::PolicyMap back_policy;
};

class EmuRig {
 public:
  // Starts the host program; aborts the test with its log when it does not come up.
  explicit EmuRig(int guests = 1, const std::string& grant_locks = "split", int workers = 2);
  ~EmuRig();
  EmuRig(const EmuRig&) = delete;
  EmuRig& operator=(const EmuRig&) = delete;

  void attach(DomId guest, const EmuVbd& vbd);
  // Writes policies of a vbd; they hold from the next connect.
  void set_policies(DomId guest, const EmuVbd& vbd);
  [[nodiscard]] Result<std::unique_ptr<apps::EmuFrontend>> connect(DomId guest);
  [[nodiscard]] fio_engine::DeviceOptions options(DomId guest) const;

  [[nodiscard]] keystore::Client& dom0() { return *dom0_; }
  [[nodiscard]] std::string frontend_path(DomId guest) const;
  [[nodiscard]] std::string backend_path(DomId guest) const;
  [[nodiscard]] std::string backend_statistics(DomId guest) const;
  [[nodiscard]] pid_t host_pid() const { return pid_; }
  [[nodiscard]] std::string log() const;
  // Ends the host orderly and returns its exit status.
  int stop();

 private:
  std::string directory_;
  pid_t pid_ = -1;
  std::unique_ptr<keystore::Client> dom0_;
};

}  // namespace xblk::scenarios
