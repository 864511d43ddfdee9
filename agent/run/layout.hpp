// Names of everything that a run or an emulated host puts on disk.
#pragma once

#include <filesystem>
#include <string>

#include "agent/toggle/vbd.hpp"
#include "drivers/base/units.hpp"

namespace xblk::run {

// The directory of one emulated host: short, because unix sockets live in it (sun_path holds 107 bytes).
struct HostLayout {
  std::filesystem::path directory;

  [[nodiscard]] std::filesystem::path xenstore_socket() const { return directory / "xenstored" / "socket"; }
  [[nodiscard]] std::filesystem::path guest_xenstore_socket(DomId guest) const;
  [[nodiscard]] std::filesystem::path hypervisor_socket() const { return directory / "hypervisor.sock"; }
  [[nodiscard]] std::filesystem::path back_statistics(const toggle::Vbd& vbd) const;
  [[nodiscard]] std::filesystem::path front_statistics(const toggle::Vbd& vbd) const;
  [[nodiscard]] std::filesystem::path description() const { return directory / "host.json"; }
  [[nodiscard]] std::filesystem::path pid_file() const { return directory / "host.pid"; }
  [[nodiscard]] std::filesystem::path log() const { return directory / "host.log"; }
};

// The directory of one run.
struct RunLayout {
  std::filesystem::path directory;

  [[nodiscard]] std::filesystem::path results() const { return directory / "results.json"; }
  [[nodiscard]] std::filesystem::path profile() const { return directory / "profile.yaml"; }
  [[nodiscard]] std::filesystem::path host_log() const { return directory / "host.log"; }
  // Relative to `directory`: "raw/<point>/repeat-0".
  [[nodiscard]] static std::filesystem::path visit(const std::string& point_id, std::size_t repeat);
};

// What one guest leaves in the directory of its visit.
struct GuestFiles {
  std::filesystem::path fio_output;
  std::filesystem::path fio_stdout;
  std::filesystem::path fio_stderr;
  std::filesystem::path snapshots;

  static GuestFiles in(const std::filesystem::path& visit, DomId guest);
};

}  // namespace xblk::run
