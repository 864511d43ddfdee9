// Backends that attack the frontend through the shared ring: responses, indexes, events.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "drivers/peer/watched_page.hpp"
#include "drivers/scenarios/hostile/attacked_front_testing.hpp"

namespace xblk::scenarios {
namespace {

using blkif::Op;
using blkif::ResponseStatus;
using peer::Index;
using peer::Notify;
using peer::SetIndex;
using peer::back::Io;
using peer::back::Reap;
using peer::back::Respond;
using peer::back::Submit;
using peer::back::Turn;
using testing::Each;
using testing::ElementsAre;

constexpr const char* kBroken = "broke the ring protocol";

// ---- XSA-155, the frontend's part, and the hardening of 2021: a response is read once, and its id is not trusted
// -----

class FrontendXsa155 : public AttackedFrontTest, public testing::WithParamInterface<NamedFrontPath> {};
INSTANTIATE_TEST_SUITE_P(Paths, FrontendXsa155, testing::ValuesIn(kFrontPaths), name_of_front_path);

TEST_P(FrontendXsa155, EveryWordOfAResponseIsReadOnce) {
  AttackedFront& front = connect({.policy = GetParam().policy});
  front.play({Submit{}, Submit{.op = Io::write, .page = 1}, Submit{.op = Io::flush}, Respond{}, Respond{}, Respond{}});
  peer::WatchedPage watched(front.back().ring());
  front.play(Reap{});
  std::map<std::uint32_t, int> reads;
  for (const auto& access : watched.stop()) {
    if (!access.write && access.offset >= blkif::kRingHeaderSize) ++reads[access.offset];
  }
  EXPECT_EQ(reads.size(), 3u * blkif::response_size(blkif::kNativeAbi) / 8) << "nothing but the responses, in words";
  for (const auto& [offset, times] : reads) EXPECT_EQ(times, 1) << "offset " << offset;
  EXPECT_THAT(front.errors(), ElementsAre(0, 0, 0));
}

struct Lie {
  const char* name;
  peer::back::Operation tell;
};
const Lie kLies[] = {
    {"an_id_that_was_never_sent", Respond{.id_xor = 1u << 20, .again = true}},
    {"an_id_of_a_slot_that_is_free", Respond{.id_xor = 1, .again = true}},
    {"an_id_beyond_the_ring", Respond{.id_xor = 0x8000, .again = true}},
    {"another_operation", Respond{.op_xor = 1, .again = true}},
    {"an_operation_that_does_not_exist", Respond{.op_xor = 0xf0, .again = true}},
    {"zeros", peer::back::RespondBytes{}},
    {"rsp_prod_far_ahead", SetIndex{Index::rsp_prod, 1000}},
    {"rsp_prod_one_too_many", SetIndex{Index::rsp_prod, 2}},
    {"rsp_prod_backwards", SetIndex{Index::rsp_prod, ~0u}},
    {"rsp_prod_half_the_way_round", SetIndex{Index::rsp_prod, 0x80000000}},
};

TEST_P(FrontendXsa155, ALieEndsTheDeviceAndEverythingIsGivenBack) {
  for (const Lie& lie : kLies) {
    SCOPED_TRACE(lie.name);
    AttackedFront& front = connect({.policy = GetParam().policy});
    front.play({Submit{}, lie.tell, Reap{}});
    EXPECT_THAT(front.errors(), ElementsAre(EIO));
    expect_ended(kBroken);
  }
}

TEST_P(FrontendXsa155, AResponseThatComesTwiceCompletesOneIo) {
  AttackedFront& front = connect({.policy = GetParam().policy});
  front.play({Submit{}, Submit{.op = Io::write, .page = 1}, Respond{.again = true}, Respond{}, Reap{}});
  EXPECT_THAT(front.errors(), ElementsAre(0, EIO)) << "the second response ends the device, and the other I/O with it";
  expect_ended(kBroken);
}

TEST_P(FrontendXsa155, AResponseThatComesTooLateMatchesNothing) {
  AttackedFront& front = connect({.policy = GetParam().policy});
  // The slot is in use again, by another request with another id.
  front.play({Submit{}, Respond{.again = true}, Reap{}, Submit{}, Respond{}, Reap{}});
  EXPECT_THAT(front.errors(), ElementsAre(0, EIO));
  expect_ended(kBroken);
}

TEST_P(FrontendXsa155, AnyStatusIsAnErrorOfTheIoAndNoMore) {
  AttackedFront& front = connect({.policy = GetParam().policy});
  for (const int status : {-1, -2, -3, 1, 77, -32768, 32767}) {
    front.play({Submit{}, Respond{.status = static_cast<ResponseStatus>(status)}, Reap{}});
  }
  EXPECT_EQ(front.errors().size(), 7u);
  EXPECT_THAT(front.errors(), Each(testing::AnyOf(EIO, EOPNOTSUPP)));
  EXPECT_TRUE(front.device().connected());
}

class FrontendBrokenDevice : public AttackedFrontTest {};

TEST_F(FrontendBrokenDevice, WhatWasNotPushedWhenItBrokeIsNeverPushed) {
  AttackedFront& front = connect();
  front.play(Submit{});
  auto channel = front.device().open_channel(0).value();
  const auto unpushed = front.buffer().subspan(kPageSize, kPageSize);
  ASSERT_TRUE(channel->submit({blkfront::IoOp::write, Sectors(8), Sectors(8), unpushed.data(), nullptr}));
  front.play({Respond{.id_xor = 1u << 20}, Reap{}});
  channel->commit();
  EXPECT_TRUE(front.open_requests().empty()) << "its caller has been told that it failed";
  blkfront::Completion completion;
  ASSERT_EQ(channel->reap(0, {&completion, 1}, Nanos(0)), 1u);
  EXPECT_EQ(completion.error, EIO);
}

// ---- XSA-391 (CVE-2021-28711): a storm of events; how the frontend turns deaf to it is in blkfront/waiting_test.cpp
// --

class FrontendXsa391 : public AttackedFrontTest {};

TEST_F(FrontendXsa391, EventsWithoutResponsesCompleteNothingAndTheIoGoesOn) {
  AttackedFront& front = connect();
  front.play(Submit{});
  for (int i = 0; i < 1000; ++i) front.play({Notify{10}, Reap{.wait_us = 10}});
  EXPECT_THAT(front.errors(), testing::IsEmpty());
  front.play({Respond{}, Reap{}});
  EXPECT_THAT(front.errors(), ElementsAre(0));
}

TEST_F(FrontendXsa391, IndexesThatTheBackendDoesNotOwnChangeNothingButWhenEventsAreSent) {
  AttackedFront& front = connect();
  for (const std::uint32_t value : {0u, 1u, 77u, 0x80000000u, ~0u}) {
    front.play({Submit{}, SetIndex{Index::req_event, value}, SetIndex{Index::rsp_event, value}, Respond{}, Reap{}});
  }
  EXPECT_THAT(front.errors(), ElementsAre(0, 0, 0, 0, 0));
}

}  // namespace
}  // namespace xblk::scenarios
