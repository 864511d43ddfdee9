// Backends that attack the frontend through its pages: they keep them, guess them, or write where they should not.
// What the backend can see in them (XSA-403) is in blkfront/untrusted_test.cpp.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>

#include "drivers/scenarios/hostile/attacked_front_testing.hpp"

namespace xblk::scenarios {
namespace {

using peer::back::Close;
using peer::back::Hold;
using peer::back::HoldGuess;
using peer::back::Io;
using peer::back::Reap;
using peer::back::Respond;
using peer::back::State;
using peer::back::Submit;
using peer::back::Turn;
using testing::ElementsAre;
using testing::HasSubstr;

// ---- XSA-396 (CVE-2022-23036, -23041): the backend still has a page that the frontend gives to somebody else
// ---------

class FrontendXsa396 : public AttackedFrontTest, public testing::WithParamInterface<NamedFrontPath> {
 protected:
  [[nodiscard]] static bool persistent() { return GetParam().policy.empty(); }
};
INSTANTIATE_TEST_SUITE_P(Paths, FrontendXsa396, testing::ValuesIn(kFrontPaths), name_of_front_path);

TEST_P(FrontendXsa396, APageThatIsKeptAfterItsRequestIsNotUsedAgain) {
  AttackedFront& front = connect({.policy = GetParam().policy});
  front.play({Submit{}, Hold{}, Respond{}, Reap{}});
  ASSERT_EQ(front.held_by_backend().size(), 1u);
  if (persistent()) {
    EXPECT_THAT(front.errors(), ElementsAre(0)) << "it stays granted: keeping it is what persistent means";
    EXPECT_TRUE(front.device().connected());
    return;
  }
  EXPECT_THAT(front.errors(), ElementsAre(EIO));
  expect_ended("a grant it did not give back");
}

TEST_P(FrontendXsa396, APageOfARequestThatFailsIsNotUsedAgainEither) {
  AttackedFront& front = connect({.policy = GetParam().policy});
  front.play(
      {Submit{}, Submit{.op = Io::write, .page = 1}, Hold{}, Hold{.request = 1}, Respond{.id_xor = 1u << 20}, Reap{}});
  EXPECT_THAT(front.errors(), ElementsAre(EIO, EIO));
  expect_ended("broke the ring protocol");
}

TEST_P(FrontendXsa396, WhatTheBackendKeepsAtTheCloseIsSaidAndStaysOutOfUse) {
  AttackedFront& front = connect({.policy = GetParam().policy});
  front.play({Submit{}, Hold{}, Respond{}, Reap{}, Close{}, Turn{}});
  front.back().release();
  front.play({State{"6"}, Turn{}, Turn{}});
  EXPECT_THAT(front.front_key("xblk-error"), HasSubstr("still holds 1 of our pages"));
  // Whoever takes pages now does not get it.
  const auto held = front.guest().frame_of(front.held_by_backend().at(0).address);
  std::set<std::uint32_t> free;
  while (const auto page = front.guest().allocate_pages(kDom0, 1)) free.insert(page->first_frame.value());
  EXPECT_FALSE(free.contains(held.value().value()));
}

TEST_P(FrontendXsa396, ABackendThatClosesButKeepsTheRingIsReported) {
  AttackedFront& front = connect({.policy = GetParam().policy});
  front.play({Close{}, Turn{}, State{"6"}, Turn{}, Turn{}});
  EXPECT_TRUE(front.device().closed());
  EXPECT_THAT(front.front_key("xblk-error"), HasSubstr("still holds 1 of our pages"));
}

TEST_P(FrontendXsa396, ReferencesThatTheBackendGuessesCostTheDeviceAtMost) {
  AttackedFront& front = connect({.policy = GetParam().policy});
  front.play({Submit{.sectors = 32}, Submit{.op = Io::write, .page = 4, .sectors = 96}});
  for (std::uint32_t gref = 0; gref < 520; ++gref) front.play(HoldGuess{gref});
  front.play({Respond{}, Respond{}, Reap{}, Turn{}, Turn{}});
}

// ---- a persistent reference names one page, as long as it is granted
// -------------------------------------------------

class FrontendGrefReuse : public AttackedFrontTest {};

TEST_F(FrontendGrefReuse, APersistentReferenceNamesOnePageUntilTheClose) {
  AttackedFront& front = connect();
  std::map<GrantRef, std::byte*> pages;
  for (std::uint32_t i = 0; i < 200; ++i) {
    front.play(Submit{.op = i % 2 == 0 ? Io::read : Io::write, .page = i, .sectors = 8 * (1 + i % 7)});
    if (i % 3 != 0) continue;
    for (const auto& request : front.open_requests()) {
      if (request.indirect) continue;
      for (const auto& segment : request.direct_segments()) {
        const auto mapped = front.back().map(segment.gref);
        ASSERT_EQ(mapped.status, platform::GrantStatus::okay);
        EXPECT_EQ(pages.emplace(segment.gref, mapped.address).first->second, mapped.address);
        front.back().unmap(mapped);
      }
    }
    while (!front.open_requests().empty()) front.play(Respond{});
    front.play(Reap{});
  }
  EXPECT_GT(pages.size(), 7u);
  EXPECT_EQ(front.count(Counter::grants_ended), 0u);
  while (!front.open_requests().empty()) front.play(Respond{});
  front.play(Reap{});
}

}  // namespace
}  // namespace xblk::scenarios
