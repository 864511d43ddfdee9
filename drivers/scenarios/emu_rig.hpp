// The whole system in real time: a host process with the real xenstored, vbds attached as a toolstack would, and this
// process as a guest.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "drivers/apps/emu_frontend/emu_frontend.hpp"
#include "drivers/blkif/policy.hpp"
#include "drivers/keystore/client.hpp"

namespace xblk::scenarios {

struct EmuVbd {
  std::string store = "ram:4MiB";
  blkif::PolicyMap front_policy;
  blkif::PolicyMap back_policy;
};

struct EmuHostSetup {
  int guests = 1;
  int workers = 2;
  blkif::PolicyMap policies;          // of the host
  std::vector<std::string> options;   // further ones of the program
  std::uint64_t descriptors_max = 0;  // RLIMIT_NOFILE of the host; 0: as the test's own
};

class EmuRig {
 public:
  // Starts the host program; aborts the test with its log when it does not come up.
  explicit EmuRig(const EmuHostSetup& setup = {});
  ~EmuRig();
  EmuRig(const EmuRig&) = delete;
  EmuRig& operator=(const EmuRig&) = delete;

  void attach(DomId guest, const EmuVbd& vbd);
  // Writes policies of a vbd; they hold from the next connect.
  void set_policies(DomId guest, const EmuVbd& vbd);
  // Asks the frontend for a reconnect; it happens when the frontend gets to it.
  void ask_for_reconnect(DomId guest);
  // Another size of the same store is a live resize.
  void set_store(DomId guest, const std::string& store);
  [[nodiscard]] Result<std::unique_ptr<apps::EmuFrontend>> connect(DomId guest);
  [[nodiscard]] fio_engine::DeviceOptions options(DomId guest) const;

  [[nodiscard]] keystore::Client& dom0() { return *dom0_; }
  [[nodiscard]] std::string frontend_path(DomId guest) const;
  [[nodiscard]] std::string backend_path(DomId guest) const;
  [[nodiscard]] std::string backend_statistics(DomId guest) const;
  [[nodiscard]] pid_t host_pid() const { return pid_; }
  [[nodiscard]] std::string log() const;
  // The descriptors that the host has open, and how many pieces of the guest's memory it has mapped.
  [[nodiscard]] std::size_t host_descriptors() const;
  [[nodiscard]] std::size_t mapped_pieces(DomId guest) const;
  // Has the backend drivers started anew beside their live rings; the host's log says when it is done.
  void restart_backends();
  // Ends the host without a word.
  void kill_host();
  // Ends the host orderly and returns its exit status.
  int stop();

 private:
  [[nodiscard]] Status write_policies(keystore::Client& keys, DomId guest, const EmuVbd& vbd) const;

  std::string directory_;
  pid_t pid_ = -1;
  std::uint64_t reconnects_ = 0;
  std::unique_ptr<keystore::Client> dom0_;
};

}  // namespace xblk::scenarios
