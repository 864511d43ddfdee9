// One xblk-emu-host: started, waited for until guests can attach, ended.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "agent/host/host.hpp"
#include "agent/run/layout.hpp"
#include "agent/run/rig.hpp"

namespace xblk::run {

struct HostProcessConfig {
  std::filesystem::path program;
  HostLayout layout;
  std::filesystem::path log;
  RigSpec spec;
  bool outlives_us = false;  // `xblk emu up`
};

std::vector<std::string> host_command(const HostProcessConfig& config);

class HostProcess {
 public:
  // Returns when the host says that it is ready. The error quotes its own last words.
  static Result<HostProcess> start(host::Host& host, const HostProcessConfig& config);

  [[nodiscard]] host::Process& process() { return *process_; }
  // One line when it has ended, whatever the reason.
  [[nodiscard]] std::optional<std::string> failure();
  void stop();

 private:
  HostProcess(std::unique_ptr<host::Process> process, std::filesystem::path log)
      : process_(std::move(process)), log_(std::move(log)) {}

  std::unique_ptr<host::Process> process_;
  std::filesystem::path log_;
};

}  // namespace xblk::run
