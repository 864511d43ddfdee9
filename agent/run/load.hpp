// From a point of the plan to the fio jobs that play its guests, and to what their results must show. Pure.
#pragma once

#include <filesystem>

#include "agent/fio/job.hpp"
#include "agent/fio/verdict.hpp"
#include "agent/plan/points.hpp"
#include "agent/run/layout.hpp"
#include "agent/run/programs.hpp"

namespace xblk::run {

inline constexpr std::uint32_t kDevice = 51712;  // xvda, the one disk of each guest

inline toggle::Vbd vbd_of(unsigned guest) {
  return {.guest = DomId(static_cast<std::uint16_t>(guest)), .device = kDevice};
}

toggle::Policies policies_of(const plan::Point& point);

// EINVAL: the point asks fio for something that xblk cannot pass on; the message says what.
Result<fio::GuestJob> job_of(const plan::Point& point, const Programs& programs, const HostLayout& host, unsigned guest,
                             const GuestFiles& files);

fio::Expectation expectation_of(const plan::Point& point);

// Whether the load moves data through grants; trim alone does not, so counters of the data path prove nothing.
bool moves_data(const plan::Point& point);

}  // namespace xblk::run
