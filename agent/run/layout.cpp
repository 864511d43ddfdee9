#include "agent/run/layout.hpp"

#include <fmt/format.h>

namespace xblk::run {
namespace {

std::filesystem::path statistics_file(const HostLayout& host, const toggle::Vbd& vbd, const char* end) {
  return host.directory / "stats" / fmt::format("vbd-{}-{}.{}", vbd.guest.value(), vbd.device, end);
}

}  // namespace

std::filesystem::path HostLayout::guest_xenstore_socket(DomId guest) const {
  return directory / "xenstored" / fmt::format("xenbus-{}", guest.value());
}

std::filesystem::path HostLayout::back_statistics(const toggle::Vbd& vbd) const {
  return statistics_file(*this, vbd, "back");
}

std::filesystem::path HostLayout::front_statistics(const toggle::Vbd& vbd) const {
  return statistics_file(*this, vbd, "front");
}

std::filesystem::path RunLayout::visit(const std::string& point_id, std::size_t repeat) {
  return std::filesystem::path("raw") / point_id / fmt::format("repeat-{}", repeat);
}

GuestFiles GuestFiles::in(const std::filesystem::path& visit, DomId guest) {
  const auto file = [&](const char* suffix) { return visit / fmt::format("guest-{}.{}", guest.value(), suffix); };
  return {.fio_output = file("fio.json"),
          .fio_stdout = file("fio.stdout"),
          .fio_stderr = file("fio.stderr"),
          .snapshots = file("snapshots.jsonl")};
}

}  // namespace xblk::run
