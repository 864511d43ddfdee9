// The exact fio command that plays one guest. `plan` prints it, `run` executes it, results keep it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "drivers/base/result.hpp"
#include "drivers/base/units.hpp"

namespace xblk::fio {

// The reference frontend as an ioengine: which library, which guest, which device, where its statistics go.
struct Engine {
  std::filesystem::path library = {};            // libxblk-fio.so
  std::filesystem::path hypervisor_socket = {};  // of the host that plays Xen
  DomId domid = {};
  std::string device = "device/vbd/51712";     // frontend directory, relative to the guest's home: xvda
  std::filesystem::path xenstore_socket = {};  // the guest's own xenbus
  std::filesystem::path snapshots = {};        // written at start, end of ramp and end
  std::filesystem::path statistics = {};
};

struct GuestJob {
  std::filesystem::path program = "fio";
  std::filesystem::path output = {};  // --output: the result
  Engine engine = {};
  std::string name = "guest";
  std::string pattern = "randread";  // rw=
  Bytes block_size{4096};
  unsigned iodepth = 1;
  unsigned jobs = 1;
  std::optional<Nanos> runtime = {};
  bool time_based = true;  // with a runtime: run for all of it, however small the disk
  std::optional<Nanos> ramp = {};
  std::optional<Bytes> size = {};
  // Any other fio option, verbatim and in order; an empty value is an option without one.
  std::vector<std::pair<std::string, std::string>> options = {};
};

// Fails on an option that would take the result or the engine out of xblk's hands.
Result<std::vector<std::string>> argv(const GuestJob& job);

// May a profile pass this option through? The error says what to use instead.
Status check_passed_option(const std::string& name);

// For display and for pasting into a shell.
std::string shell_quoted(const std::vector<std::string>& argv);

}  // namespace xblk::fio
