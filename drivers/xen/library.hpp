// What all of libxen's libraries need from us: silence on stderr, and one line when there is no Xen.
#pragma once

#include <cstdint>

#include "drivers/base/result.hpp"

struct xentoollog_logger;

namespace xblk::xen {

struct KernelDevice {
  const char* path;    // what the library opens
  const char* module;  // what provides it
};
inline constexpr KernelDevice kGntdev{"/dev/xen/gntdev", "xen-gntdev"};
inline constexpr KernelDevice kGntalloc{"/dev/xen/gntalloc", "xen-gntalloc"};
inline constexpr KernelDevice kEvtchn{"/dev/xen/evtchn", "xen-evtchn"};

// Given to every open. Without it the libraries write to stderr what errno says already.
[[nodiscard]] xentoollog_logger* quiet_logger();

// Why `device` could not be opened, from errno. ENOENT, ENODEV, ENXIO: this machine does not run on Xen, or the module
// is not loaded.
[[nodiscard]] tl::unexpected<Error> open_failed(const KernelDevice& device);

// The module's `limit` parameter now (an administrator may change it at any time), or `fallback` when it is unreadable.
[[nodiscard]] std::uint32_t page_limit(const char* parameter_path, std::uint32_t fallback);

}  // namespace xblk::xen
