// The rig of the emulation: a private xblk-emu-host in a directory of its own.
#pragma once

#include <memory>

#include "agent/run/host_process.hpp"
#include "agent/run/programs.hpp"
#include "agent/run/rig.hpp"
#include "agent/toggle/keystore_access.hpp"
#include "drivers/base/unique_fd.hpp"

namespace xblk::run {

class EmuRig final : public Rig {
 public:
  // `log` receives what the host says on stderr.
  EmuRig(host::Host& host, Programs programs, std::filesystem::path log);
  EmuRig(const EmuRig&) = delete;
  EmuRig& operator=(const EmuRig&) = delete;
  ~EmuRig() override;

  Status start(const RigSpec& spec) override;
  void stop() override;
  [[nodiscard]] toggle::KeyAccess& keys() override { return *keys_; }
  [[nodiscard]] const HostLayout& layout() const override { return layout_; }
  [[nodiscard]] host::Process* process() override { return process_ ? &process_->process() : nullptr; }
  [[nodiscard]] std::optional<std::string> failure() override;

 private:
  host::Host& host_;
  Programs programs_;
  std::filesystem::path log_;
  HostLayout layout_;
  UniqueFd lock_;  // on the directory: says that its run lives, and dies with us
  std::optional<HostProcess> process_;
  std::unique_ptr<toggle::KeystoreAccess> keys_;
};

// Directories of private hosts begin like this, below TMPDIR: `xblk restore` clears those of runs that were killed.
inline constexpr std::string_view kHostDirectoryPrefix = "xblk-host-";

// Directories left by runs whose host is gone.
std::vector<std::filesystem::path> abandoned_host_directories();

}  // namespace xblk::run
