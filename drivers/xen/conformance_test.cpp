// The conformance suite on real Xen, in its control domain: both ends are this process, which grants pages to its own
// domain. Exits with 77 and one line where that cannot be.
#include <gtest/gtest.h>

#include <cstdio>
#include <memory>
#include <string>

#include "drivers/env/real/real_env.hpp"
#include "drivers/keystore/client.hpp"
#include "drivers/platform/conformance/conformance.hpp"
#include "drivers/xen/back.hpp"
#include "drivers/xen/front.hpp"

namespace xblk::xen {
namespace {

class XenRig {
 public:
  using Env = env::RealEnv;
  using Front = XenFront;
  using Back = XenBack;
  static constexpr bool kScatteredRings = true;
  static constexpr bool kGrantsAtAllocation = true;

  static std::string unavailable() {
    env::RealEnv env;
    if (auto back = XenBack::open(env); !back) return back.error().message;
    if (auto front = XenFront::open(env, kDom0); !front) return front.error().message;
    auto keys = keystore::Client::connect("");
    if (!keys) return keys.error().message;
    const auto self = own_domain(*keys);
    if (!self) return self.error().message;
    return *self == kDom0 ? "" : "this is a guest: run it in the control domain, whose pages both ends can reach";
  }

  XenRig() : front_(std::move(*XenFront::open(env_, kDom0))), back_(std::move(*XenBack::open(env_))) {}
  Env& env() { return env_; }
  Front& front() { return *front_; }
  Back& back() { return *back_; }
  std::string leaks() { return front_->leaks() + back_->leaks(); }

 private:
  Env env_;
  std::unique_ptr<Front> front_;
  std::unique_ptr<Back> back_;
};

// What gntalloc cannot do, and so no user-space frontend can (front.hpp). The mapping side of these cases is tested on
// the emulation; here they could only fail.
struct Exclusion {
  const char* test;
  const char* reason;
};
constexpr Exclusion kExclusions[] = {
    {"AccessEndsOnlyWhenNobodyHoldsThePage", "gntalloc ends a grant when the page is freed, not before"},
    {"ReadOnlyGrantAdmitsReadersOnly", "gntalloc fixes the access when the page is allocated"},
    {"CopyObeysPermissions", "gntalloc fixes the access when the page is allocated"},
    {"GrantForAnotherDomainIsRefused", "gntalloc fixes the peer when the page is allocated"},
    {"FullGrantTableAndMemoryAreErrorsThatPass", "gntalloc gives a page its one reference when it is allocated"},
};

std::string filter_without_exclusions() {
  std::string filter = "-";
  for (const Exclusion& exclusion : kExclusions) {
    std::printf("not on real Xen: %s: %s\n", exclusion.test, exclusion.reason);
    filter += std::string("*.") + exclusion.test + ":";
  }
  return filter;
}

}  // namespace
}  // namespace xblk::xen

namespace xblk::platform {

INSTANTIATE_TYPED_TEST_SUITE_P(Xen, Conformance, ::testing::Types<xen::XenRig>);

}  // namespace xblk::platform

int main(int argc, char** argv) {
  constexpr int kSkipped = 77;  // SKIP_RETURN_CODE of xblk_machine_test()
  if (const std::string reason = xblk::xen::XenRig::unavailable(); !reason.empty()) {
    std::printf("skipped: %s\n", reason.c_str());
    return kSkipped;
  }
  ::testing::GTEST_FLAG(filter) = xblk::xen::filter_without_exclusions();
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
