// The Xen platform on any machine: with Xen it opens; without, each open says so in one line and nothing else.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "drivers/apps/xen_platform.hpp"

namespace xblk::apps {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

// Opens, and checks the outcome against what the kernel offers: `devices` are what the end needs, in order.
template <class Open>
void expect_opens_or_says_why_not(Open open, const std::vector<std::string>& devices) {
  ::testing::internal::CaptureStderr();
  auto opened = open();
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "") << "the libraries' own logging is off";
  for (const auto& device : devices) {
    if (::access(device.c_str(), F_OK) == 0) continue;
    ASSERT_FALSE(opened);
    EXPECT_THAT(opened.error().code, AnyOf(ENOENT, ENODEV, ENXIO));
    EXPECT_THAT(opened.error().message, StartsWith("no Xen here: " + device + " is missing; "));
    EXPECT_THAT(opened.error().message, Not(HasSubstr("\n")));
    return;
  }
  EXPECT_TRUE(opened) << opened.error().message;
}

TEST(XenPlatform, BackendOpensOrSaysWhyNot) {
  env::RealEnv env;
  expect_opens_or_says_why_not([&] { return XenPlatform::Back::open(env); }, {"/dev/xen/gntdev", "/dev/xen/evtchn"});
}

TEST(XenPlatform, FrontendOpensOrSaysWhyNot) {
  env::RealEnv env;
  expect_opens_or_says_why_not([&] { return XenPlatform::Front::open(env, DomId(1)); },
                               {"/dev/xen/gntalloc", "/dev/xen/evtchn"});
}

}  // namespace
}  // namespace xblk::apps
