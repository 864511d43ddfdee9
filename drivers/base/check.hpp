// CHECK: a bug in xblk itself. On in every build, because a driver that goes on after a broken invariant corrupts data.
// Never for what a peer, a device or a user can cause: those return errors (see result.hpp).
#pragma once

#include <cstdio>
#include <cstdlib>

namespace xblk {

[[noreturn]] inline void check_failed(const char* expression, const char* file, int line, const char* why) {
  std::fprintf(stderr, "xblk: bug at %s:%d: CHECK(%s) failed: %s\n", file, line, expression, why);
  std::abort();
}

}  // namespace xblk

#define XBLK_CHECK(condition, why)                                          \
  (__builtin_expect(static_cast<bool>(condition), 1) ? static_cast<void>(0) \
                                                     : ::xblk::check_failed(#condition, __FILE__, __LINE__, why))
