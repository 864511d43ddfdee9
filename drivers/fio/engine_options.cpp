#include "drivers/fio/engine_options.hpp"

#include <array>
#include <cstddef>

#include <fmt/format.h>

#include "drivers/fio/policy_list.hpp"

#include "drivers/fio/fio_headers.hpp"

namespace xblk::fio_engine {
namespace {

constexpr Nanos kConnectTimeout = seconds(10);
constexpr int kDomidMax = 0x7ff0 - 1;  // DOMID_FIRST_RESERVED of xen.h

fio_option option(const char* name, const char* long_name, fio_opt_type type, std::size_t offset, const char* help) {
  fio_option entry{};
  entry.name = name;
  entry.lname = long_name;
  entry.type = type;
  entry.off1 = static_cast<unsigned>(offset);
  entry.help = help;
  entry.category = FIO_OPT_C_ENGINE;
  entry.group = FIO_OPT_G_INVALID;
  return entry;
}

fio_option domid_option() {
  fio_option entry = option("xblk_domid", "guest's domain number", FIO_OPT_INT, offsetof(EngineOptions, domid),
                            "Domain that this fio process is");
  entry.minval = 1;
  entry.maxval = kDomidMax;
  entry.def = "1";
  return entry;
}

std::string text_of(const char* value) {
  return value == nullptr ? "" : value;
}

}  // namespace

fio_option* option_table() {
  constexpr auto kText = FIO_OPT_STR_STORE;
  static std::array table = {
      option("xblk_hypervisor", "hypervisor socket", kText, offsetof(EngineOptions, hypervisor),
             "Unix socket of the emulated hypervisor's host (xblk emu env prints it)"),
      domid_option(),
      option("xblk_device", "frontend directory", kText, offsetof(EngineOptions, device),
             "Frontend's xenstore directory, for example device/vbd/51712"),
      option("xblk_xenstore", "xenstore socket", kText, offsetof(EngineOptions, xenstore),
             "Unix socket by which this guest reaches xenstored"),
      option("xblk_snapshots", "snapshots file", kText, offsetof(EngineOptions, snapshots),
             "Append counters of both ends at start, end of ramp time and end, one JSON line each"),
      option("xblk_statistics", "statistics file", kText, offsetof(EngineOptions, statistics),
             "Where the frontend publishes its live counters"),
      option("xblk_policy", "frontend policy", kText, offsetof(EngineOptions, policy),
             "Overrides of the frontend's policy: key=value,key=value"),
      fio_option{},
  };
  return table.data();
}

Result<JobOptions> read_options(const EngineOptions& options, Bytes buffer_bytes) {
  if (text_of(options.device).empty())
    return fail(EINVAL, "xblk_device is missing, for example xblk_device=device/vbd/51712");
  auto policy = parse_policy_list(text_of(options.policy));
  if (!policy) return tl::unexpected(policy.error());
  JobOptions job;
  job.snapshots = text_of(options.snapshots);
  job.device.hypervisor_socket = text_of(options.hypervisor);
  job.device.domid = DomId(static_cast<std::uint16_t>(options.domid));
  job.device.device = text_of(options.device);
  job.device.xenstore_socket = text_of(options.xenstore);
  job.device.statistics_path = text_of(options.statistics);
  job.device.buffer_bytes = buffer_bytes;
  job.device.policy = std::move(*policy);
  job.device.connect_timeout = kConnectTimeout;
  return job;
}

}  // namespace xblk::fio_engine
