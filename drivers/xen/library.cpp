#include "drivers/xen/library.hpp"

extern "C" {
#include <xentoollog.h>
}

#include <fmt/format.h>

#include <cerrno>
#include <cstdarg>
#include <fstream>

namespace xblk::xen {
namespace {

void drop_message(xentoollog_logger*, xentoollog_level, int, const char*, const char*, va_list) {}
void keep(xentoollog_logger*) {}

}  // namespace

xentoollog_logger* quiet_logger() {
  static xentoollog_logger logger{drop_message, nullptr, keep};
  return &logger;
}

tl::unexpected<Error> open_failed(const KernelDevice& device) {
  const int code = errno;
  switch (code) {
    case ENOENT:
    case ENODEV:
    case ENXIO:
      return fail(code, fmt::format("no Xen here: {} is missing; boot this machine on Xen, or modprobe {}", device.path,
                                    device.module));
    case EACCES:
    case EPERM:
      return fail(code, fmt::format("no permission to open {}; run as root", device.path));
    default:
      return fail(code, fmt::format("open {}: {}", device.path, std::strerror(code)));
  }
}

std::uint32_t page_limit(const char* parameter_path, std::uint32_t fallback) {
  std::ifstream file(parameter_path);
  std::uint32_t limit = 0;
  return file >> limit && limit > 0 ? limit : fallback;
}

}  // namespace xblk::xen
