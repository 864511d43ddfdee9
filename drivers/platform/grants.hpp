// The vocabulary of grant operations, as in xen/include/public/grant_table.h, in the driver's own types.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "drivers/base/units.hpp"

namespace xblk::platform {

// GNTST_*: what the hypervisor says of one operation of a batch.
enum class GrantStatus : std::int16_t {
  okay = 0,
  general_error = -1,
  bad_domain = -2,
  bad_gntref = -3,
  bad_handle = -4,
  no_device_space = -7,  // out of mapping capacity (maptrack, vm.max_map_count)
  permission_denied = -8,
  bad_page = -9,
  bad_copy_arg = -10,
  eagain = -12,
};

enum class Access : std::uint8_t { read_write, read_only };  // what the *mapper* may do with the page

struct MapOp {
  GrantRef gref{};
  Access access = Access::read_write;
  // Results. A failed operation leaves `address` null and holds nothing: no operation of a batch depends on another.
  GrantStatus status = GrantStatus::general_error;
  MapHandle handle{};
  std::byte* address = nullptr;
};

struct UnmapOp {
  MapHandle handle{};
  std::byte* address = nullptr;
  GrantStatus status = GrantStatus::general_error;  // result
};

// Copy between a granted page and local memory; at most to the end of the granted page.
struct CopyOp {
  enum class Direction : std::uint8_t { from_grant, to_grant };
  Direction direction = Direction::from_grant;
  GrantRef gref{};
  std::uint16_t offset = 0;  // inside the granted page
  std::uint16_t length = 0;  // bytes, offset + length <= 4096
  std::byte* local = nullptr;
  GrantStatus status = GrantStatus::general_error;  // result
};

// What a batch of grant operations cost besides time; the driver adds it to its counters.
struct LockWait {
  std::uint64_t wait_ns = 0;
  std::uint64_t contended = 0;
};

// A block of a domain's own grantable pages.
struct PageBlock {
  std::byte* address = nullptr;  // page-aligned
  FrameNumber first_frame{};
  std::uint32_t pages = 0;
};

}  // namespace xblk::platform
