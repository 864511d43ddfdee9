// Frontends that attack the backend through the key store: values, missing and repeated keys, states, floods.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <functional>
#include <string>
#include <vector>

#include "drivers/scenarios/hostile/attacked_backend_testing.hpp"

namespace xblk::scenarios {
namespace {

using testing::HasSubstr;
using Front = peer::ScriptedFront<ModelPlatform>;

// ---- "negotiation values": each is refused before it is used, with a reason, and costs one connect ------------------

struct BadOffer {
  const char* name;
  std::uint32_t queues;
  std::uint32_t ring_page_order;
  std::function<void(Front&)> spoil;  // after the good keys have been written
  const char* reason;                 // in xblk-error
};

void PrintTo(const BadOffer& offer, std::ostream* out) {
  *out << offer.name;
}

std::function<void(Front&)> write(const char* key, const char* value) {
  return [=](Front& front) { front.write(key, value); };
}
std::function<void(Front&)> without(const char* key) {
  return [=](Front& front) { front.remove(key); };
}

const BadOffer kBadOffers[] = {
    {"order_31", 1, 0, write("ring-page-order", "31"), "ring-page-order"},
    {"order_64", 1, 0, write("ring-page-order", "64"), "ring-page-order"},
    {"order_minus_1", 1, 0, write("ring-page-order", "-1"), "ring-page-order"},
    {"order_5_is_above_the_limit", 1, 0, write("ring-page-order", "5"), "ring-page-order"},
    {"order_4294967296", 1, 0, write("ring-page-order", "4294967296"), "ring-page-order"},
    {"order_larger_than_its_references", 1, 1, write("ring-page-order", "2"), "ring-ref2: missing"},
    {"no_queues", 1, 0, write("multi-queue-num-queues", "0"), "multi-queue-num-queues"},
    {"a_billion_queues", 1, 0, write("multi-queue-num-queues", "1000000000"), "multi-queue-num-queues"},
    {"queues_above_the_limit", 1, 0, write("multi-queue-num-queues", "5"), "multi-queue-num-queues"},
    {"queues_minus_1", 1, 0, write("multi-queue-num-queues", "-1"), "multi-queue-num-queues"},
    {"no_queue_0", 2, 0, without("queue-0"), "queue-0/ring-ref: missing"},
    {"no_queue_1", 2, 0, without("queue-1"), "queue-1/ring-ref: missing"},
    {"queues_of_an_earlier_connection", 1, 0, write("multi-queue-num-queues", "2"), "multi-queue-num-queues"},
    {"no_reference", 1, 0, without("ring-ref"), "ring-ref: missing"},
    {"no_second_reference", 1, 1, without("ring-ref1"), "ring-ref1: missing"},
    {"a_reference_twice", 1, 1,
     [](Front& front) { front.write("ring-ref1", std::to_string(front.offer().queues[0].ring_refs[0].value())); },
     "twice"},
    {"a_reference_in_two_queues", 2, 0,
     [](Front& front) {
       front.write("queue-1/ring-ref", std::to_string(front.offer().queues[0].ring_refs[0].value()));
     },
     "twice"},
    {"a_reference_of_both_names", 1, 0, write("ring-ref0", "9"), "ring-ref0"},
    {"a_reference_beyond_the_table", 1, 0, write("ring-ref", "4294967295"), "grant 4294967295"},
    {"a_reference_that_is_reserved", 1, 0, write("ring-ref", "0"), "grant 0"},
    {"a_reference_that_is_no_number", 1, 0, write("ring-ref", "junk"), "ring-ref"},
    {"a_page_that_is_not_writable", 1, 0,
     [](Front& front) {
       front.write("ring-ref", std::to_string(front.grant(front.allocate(1), 0, platform::Access::read_only).value()));
     },
     "grant status"},
    {"no_event_channel", 1, 0, without("event-channel"), "event-channel: missing"},
    {"an_event_channel_that_does_not_exist", 1, 0, write("event-channel", "999"), "port 999"},
    {"event_channel_0", 1, 0, write("event-channel", "0"), "event-channel"},
    {"event_channel_beyond_all", 1, 0, write("event-channel", "4294967295"), "port 4294967295"},
    {"an_event_channel_twice", 2, 0,
     [](Front& front) {
       front.write("queue-1/event-channel", std::to_string(front.offer().queues[0].event_channel.value()));
     },
     "twice"},
    {"an_event_channel_for_another_domain", 1, 0,
     [](Front& front) { front.write("event-channel", std::to_string(front.allocate_port(DomId(2)).value())); },
     "not an unbound port for domain 0"},
    {"a_protocol_that_nobody_speaks", 1, 0, write("protocol", "vax-abi"), "vax-abi"},
    {"an_empty_protocol", 1, 0, write("protocol", ""), "protocol"},
    {"a_protocol_with_junk", 1, 0, write("protocol", "x86_64-abi\n\x01"), "protocol"},
    {"persistent_2", 1, 0, write("feature-persistent", "2"), "feature-persistent"},
};

class BackendNegotiation : public AttackedBackendTest, public testing::WithParamInterface<BadOffer> {};
INSTANTIATE_TEST_SUITE_P(Values, BackendNegotiation, testing::ValuesIn(kBadOffers),
                         [](const auto& test) { return std::string(test.param.name); });

TEST_P(BackendNegotiation, ABadValueIsRefusedWithItsNameAndTheDeviceCanConnectAgain) {
  offer();
  front_->offer().ring_page_order = GetParam().ring_page_order;
  front_->build_rings(GetParam().queues);
  for (const auto& [name, value] : blkif::frontend_keys(front_->offer())) front_->write(name, value);
  GetParam().spoil(*front_);
  front_->set_state("3");
  ASSERT_TRUE(rig_.run_until([&] { return state() == "5"; })) << "state " << state();
  EXPECT_THAT(error(), HasSubstr(GetParam().reason));
  EXPECT_EQ(error().find('\n'), std::string::npos) << "one line";
  EXPECT_EQ(rig_.usage().mappings, 0u);
  reconnect_and_read();
}

// ---- XSA-300: rings and queues beyond what the backend can map
// -------------------------------------------------------

class BackendXsa300Rings : public AttackedBackendTest {
 protected:
  BackendXsa300Rings() : AttackedBackendTest(7, {.maptrack_limit = 20}) {}
};

TEST_F(BackendXsa300Rings, MoreRingPagesThanCanBeMappedAreRefusedWholeAndFewerConnect) {
  offer();
  front_->offer().ring_page_order = 3;
  front_->publish(4);  // 32 pages
  expect_state("5");
  EXPECT_THAT(error(), HasSubstr("queue 2: ring pages"));
  EXPECT_EQ(rig_.usage().mappings, 0u) << "those of the first two rings too";
  reconnect_and_read();
}

// ---- XSA-349 (CVE-2020-29568): a flood of watch events
// ---------------------------------------------------------------

class BackendXsa349 : public AttackedBackendTest {};

TEST_F(BackendXsa349, AStateThatIsRewrittenCostsItsEventsNotAnEvaluationEach) {
  offer();
  front_->publish();
  expect_state("4");
  const auto connects = [&] {
    return rig_.backends().devices().at(ModelRig::backend_path(kGuest))->statistics().header().generation.load();
  };
  const std::uint32_t before = connects();
  for (int i = 0; i < 100000; ++i) front_->set_state(i % 2 == 0 ? "3" : "4");
  // 4,096 events a turn: as many turns of the control thread as that takes, and no reconnect in any of them.
  for (int i = 0; i < 100000 / 4096 + 1; ++i) rig_.backends().turn();
  EXPECT_FALSE(rig_.dom0_keys().poll_watch()) << "all merged";
  EXPECT_EQ(state(), "4");
  EXPECT_EQ(connects(), before);
  read();
}

// ---- states of a frontend that no honest one has
// ---------------------------------------------------------------------

class BackendStates : public AttackedBackendTest {};

TEST_F(BackendStates, JumpsAndRepeatsLeaveADeviceThatCanConnect) {
  offer();
  front_->publish();
  expect_state("4");
  for (const char* jump : {"4", "3", "4", "2", "7", "8", "4", "1", "4", "5", "3", "6", "5", "4", "1", "6", "1", "1"}) {
    SCOPED_TRACE(jump);
    front_->set_state(jump);
    for (int i = 0; i < 50; ++i) rig_.turn();
  }
  reconnect_and_read();
}

// As in Linux, a frontend without a state is a frontend that is gone.
class BackendUnknownState : public AttackedBackendTest, public testing::WithParamInterface<const char*> {};
INSTANTIATE_TEST_SUITE_P(States, BackendUnknownState, testing::Values("0", "99", "", "-1", "junk", "4 "));

TEST_P(BackendUnknownState, EndsTheDeviceAndLeavesNothingUntilTheToolstackAttachesItAgain) {
  offer();
  front_->publish();
  expect_state("4");
  front_->set_state(GetParam());
  expect_state("6");
  EXPECT_TRUE(rig_.backends().devices().empty());
  EXPECT_TRUE(front_->withdraw());
  front_->set_state("1");
  ASSERT_TRUE(rig_.dom0_keys().write(ModelRig::backend_path(kGuest) + "/online", "1"));
  expect_state("2");
  front_->publish();
  expect_state("4");
  read();
}

TEST_F(BackendStates, ConnectedWithoutKeysIsRefusedAndLeavesNothing) {
  offer();
  front_->set_state("4");
  expect_state("5");
  EXPECT_THAT(error(), HasSubstr("ring-ref: missing"));
  reconnect_and_read();
}

TEST_F(BackendStates, ClosingWithRequestsOnTheRingAnswersThemAndGoesOnToTheEnd) {
  offer();
  front_->publish();
  expect_state("4");
  front_->set_state("5");
  read();  // the backend serves until the frontend has closed
  expect_state("5");
  front_->set_state("6");
  expect_state("6");
  EXPECT_TRUE(front_->withdraw()) << "and holds nothing any more";
}

}  // namespace
}  // namespace xblk::scenarios
