#include "agent/run/load.hpp"

#include <fmt/format.h>

#include "drivers/base/check.hpp"

namespace xblk::run {
namespace {

const std::string& setting(const plan::Point& point, std::string_view name) {
  const std::string* value = plan::find_setting(point.fio, name);
  XBLK_CHECK(value != nullptr, "a point's load is complete");
  return *value;
}

unsigned count_setting(const plan::Point& point, std::string_view name) {
  return static_cast<unsigned>(plan::parse_size(setting(point, name))->value());
}

tl::unexpected<Error> unusable(const std::string& option, const std::string& value, const char* wanted) {
  return fail(EINVAL, fmt::format("fio option '{}' cannot be '{}'; it takes {}", option, value, wanted));
}

Status set_option(fio::GuestJob& job, const std::string& option, const std::string& value) {
  if (option == "rw") {
    job.pattern = value;
  } else if (option == "bs") {
    job.block_size = *plan::parse_size(value);
  } else if (option == "iodepth" || option == "numjobs") {
    (option == "iodepth" ? job.iodepth : job.jobs) = static_cast<unsigned>(plan::parse_size(value)->value());
  } else if (option == "time_based") {
    job.time_based = value != "0";
  } else if (option == "runtime" || option == "ramp_time") {
    const auto time = plan::parse_duration(value);
    if (!time) return unusable(option, value, "a duration such as 3s or 500ms");
    (option == "runtime" ? job.runtime : job.ramp) = *time;
  } else if (option == "size") {
    const auto size = plan::parse_size(value);
    if (!size) return unusable(option, value, "a size such as 32m");
    job.size = *size;
  } else {
    if (auto status = fio::check_passed_option(option); !status) return status;
    job.options.emplace_back(option, value);
  }
  return {};
}

std::set<fio::Way> ways_of(const std::string& rw) {
  using fio::Way;
  if (rw == "read" || rw == "randread") return {Way::kRead};
  if (rw == "write" || rw == "randwrite") return {Way::kWrite};
  if (rw == "trim" || rw == "randtrim") return {Way::kTrim};
  if (rw == "trimwrite") return {Way::kWrite, Way::kTrim};
  return {Way::kRead, Way::kWrite};
}

}  // namespace

toggle::Policies policies_of(const plan::Point& point) {
  return {.front = point.front, .back = point.back};
}

Result<fio::GuestJob> job_of(const plan::Point& point, const Programs& programs, const HostLayout& host, unsigned guest,
                             const GuestFiles& files) {
  const toggle::Vbd vbd = vbd_of(guest);
  fio::GuestJob job{.program = programs.fio, .output = files.fio_output};
  job.name = fmt::format("guest-{}", guest);
  job.time_based = false;  // unless the profile says so: a runtime alone is a limit
  job.engine = {.library = programs.engine,
                .hypervisor_socket = host.hypervisor_socket(),
                .domid = vbd.guest,
                .device = fmt::format("device/vbd/{}", vbd.device),
                .xenstore_socket = host.guest_xenstore_socket(vbd.guest),
                .snapshots = files.snapshots,
                .statistics = host.front_statistics(vbd)};
  for (const auto& [option, value] : point.fio) {
    if (auto status = set_option(job, option, value); !status) return forward(status.error(), "point " + point.id);
  }
  return job;
}

fio::Expectation expectation_of(const plan::Point& point) {
  fio::Expectation expectation{.ways = ways_of(setting(point, "rw")),
                               .iodepth = count_setting(point, "iodepth"),
                               .jobs = count_setting(point, "numjobs")};
  const bool mixed_sizes =
      plan::find_setting(point.fio, "bssplit") != nullptr || plan::find_setting(point.fio, "bsrange") != nullptr;
  if (!mixed_sizes) expectation.block_size = plan::parse_size(setting(point, "bs"));
  const std::string* time_based = plan::find_setting(point.fio, "time_based");
  const std::string* runtime = plan::find_setting(point.fio, "runtime");
  if (time_based != nullptr && *time_based != "0" && runtime != nullptr) {
    expectation.runtime = plan::parse_duration(*runtime);
  }
  return expectation;
}

bool moves_data(const plan::Point& point) {
  return ways_of(setting(point, "rw")) != std::set<fio::Way>{fio::Way::kTrim};
}

}  // namespace xblk::run
