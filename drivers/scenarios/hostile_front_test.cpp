// Frontends that attack the backend: each costs its own device at most, every request gets one response, nothing leaks.
// Test names carry the class of the security list (XSA numbers, "insane number of requests", negotiation values).
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

#include "drivers/peer/scripted_front.hpp"
#include "drivers/scenarios/model_rig.hpp"

namespace xblk::scenarios {
namespace {

constexpr DomId kGuest{1};
using blkif::Op;
using blkif::ResponseStatus;
using Front = peer::ScriptedFront<ModelPlatform>;

class HostileFront : public testing::TestWithParam<blkif::Abi> {
 protected:
  void connect(VbdOptions options = {}) {
    rig_.add_bare_guest(kGuest, options);
    front_ = std::make_unique<Front>(rig_.guest(kGuest), rig_.guest_keys(kGuest), ModelRig::frontend_path(kGuest),
                                     GetParam());
    ASSERT_TRUE(rig_.run_until([&] { return backend_state() == "2"; }));
    front_->publish();
    ASSERT_TRUE(rig_.run_until([&] { return backend_state() == "4"; })) << backend_error();
    data_ = front_->allocate(4);
  }

  std::string backend_state() { return rig_.dom0_keys().read(ModelRig::backend_path(kGuest) + "/state").value_or(""); }
  std::string backend_error() {
    return rig_.dom0_keys().read(ModelRig::backend_path(kGuest) + "/xblk-error").value_or("");
  }

  blkif::Request request(Op op, std::uint64_t id) {
    blkif::Request r;
    r.op = op;
    r.id = id;
    r.sector = Sectors(0);
    return r;
  }
  blkif::Segment whole_page(GrantRef gref) { return {gref, 0, 7}; }

  blkif::Response answer() {
    std::optional<blkif::Response> response;
    EXPECT_TRUE(rig_.run_until([&] { return (response = front_->take_response()).has_value(); }));
    return response.value_or(blkif::Response{});
  }
  blkif::Response ask(blkif::Request r, std::vector<blkif::Segment> segments) {
    r.segment_count = static_cast<std::uint16_t>(segments.size());
    front_->put(r, segments);
    front_->push();
    return answer();
  }
  std::uint64_t counter(Counter c) {
    return rig_.backends().devices().at(ModelRig::backend_path(kGuest))->statistics().queues()[0].get(c);
  }

  void TearDown() override {
    // Whatever was done to it: the guest goes, and dom0 holds nothing of it.
    front_.reset();
    rig_.kill_guest(kGuest);
    EXPECT_EQ(rig_.usage(), hypervisor::HypervisorUsage{});
  }

  ModelRig rig_{7};
  std::unique_ptr<Front> front_;
  platform::PageBlock data_{};
};
INSTANTIATE_TEST_SUITE_P(Abis, HostileFront, testing::Values(blkif::Abi::x86_64, blkif::Abi::x86_32),
                         [](const auto& test) { return test.param == blkif::Abi::x86_64 ? "x86_64" : "x86_32"; });

TEST_P(HostileFront, EchoesAll64BitsOfTheIdAndLeaksNoByteOfItsStack_XSA216) {
  connect();
  std::memset(front_->response_slot() + 8, 0xab, blkif::response_size(GetParam()) - 8);
  std::byte* const slot = front_->response_slot();
  const auto response = ask(request(Op::read, 0xfedcba9876543210ULL), {whole_page(front_->grant(data_, 0))});
  EXPECT_EQ(response.id, 0xfedcba9876543210ULL);
  EXPECT_EQ(response.status, ResponseStatus::okay);
  EXPECT_EQ(slot[9], std::byte{0});
  for (std::size_t i = 12; i < blkif::response_size(GetParam()); ++i) EXPECT_EQ(slot[i], std::byte{0}) << i;
}

TEST_P(HostileFront, ABadGrantAtEveryPositionOfABatchIsOneErrorAndNoLeak_XSA361_365_371) {
  connect({.front_policy = {}, .back_policy = {{"max-persistent-grants", "4"}}});
  for (std::size_t bad = 0; bad < 11; ++bad) {
    std::vector<blkif::Segment> segments;
    for (std::size_t i = 0; i < 11; ++i)
      segments.push_back(whole_page(i == bad ? GrantRef(9999) : front_->grant(data_, 0)));
    EXPECT_EQ(ask(request(Op::write, 100 + bad), segments).status, ResponseStatus::error) << bad;
  }
  EXPECT_EQ(counter(Counter::map_errors), 11u);
  EXPECT_EQ(ask(request(Op::read, 1), {whole_page(front_->grant(data_, 1))}).status, ResponseStatus::okay);
}

TEST_P(HostileFront, AReadOnlyGrantCannotBeReadInto) {
  connect();
  const auto gref = front_->grant(data_, 0, platform::Access::read_only);
  EXPECT_EQ(ask(request(Op::read, 5), {whole_page(gref)}).status, ResponseStatus::error);
}

TEST_P(HostileFront, TheSameGrefTwiceInOneRequestIsServed) {
  connect();
  const auto gref = front_->grant(data_, 0);
  EXPECT_EQ(ask(request(Op::write, 5), {whole_page(gref), whole_page(gref)}).status, ResponseStatus::okay);
  EXPECT_EQ(ask(request(Op::write, 6), {whole_page(gref)}).status, ResponseStatus::okay);
}

TEST_P(HostileFront, AboveThePersistentCapGrantsAreMappedForOneRequest_Seed003) {
  connect({.back_policy = {{"max-persistent-grants", "2"}, {"persistent-purge", "off"}}});
  for (std::uint32_t i = 0; i < 4; ++i) {
    EXPECT_EQ(ask(request(Op::write, i + 1), {whole_page(front_->grant(data_, i))}).status, ResponseStatus::okay);
  }
  EXPECT_EQ(counter(Counter::persistent_misses), 2u);
  EXPECT_EQ(counter(Counter::persistent_overflows), 2u);
  EXPECT_EQ(counter(Counter::unmaps), 2u);
}

TEST_P(HostileFront, MalformedRequestsEachGetOneErrorWithTheirId) {
  connect({.back_policy = {{"ordering", "flush"}}});
  const auto gref = front_->grant(data_, 0);
  std::uint64_t id = 1000;
  const auto refused = [&](blkif::Request r, std::vector<blkif::Segment> segments) {
    r.id = ++id;
    const auto response = ask(r, std::move(segments));
    EXPECT_EQ(response.id, id);
    EXPECT_NE(response.status, ResponseStatus::okay) << "request " << id;
  };
  refused(request(Op::read, 0), {});                             // no segment
  refused(request(Op::read, 0), {{gref, 5, 4}});                 // last before first
  refused(request(Op::write, 0), {{gref, 0, 8}});                // beyond the page
  refused(request(static_cast<Op>(77), 0), {whole_page(gref)});  // no such operation
  refused(request(Op::write_barrier, 0), {whole_page(gref)});    // not offered
  auto far = request(Op::read, 0);
  far.sector = Sectors(8191);
  refused(far, {whole_page(gref)});  // beyond the end
  far.sector = Sectors(~std::uint64_t{0} - 3);
  refused(far, {whole_page(gref)});  // sector + length overflows
  EXPECT_EQ(counter(Counter::requests_malformed), id - 1000);
  EXPECT_EQ(counter(Counter::maps), 0u);
}

TEST_P(HostileFront, AnInsaneNumberOfRequestsHaltsTheRingInsteadOfSpinning) {
  connect();
  front_->set_req_prod(0x80000000u);
  for (int i = 0; i < 200; ++i) rig_.turn();
  EXPECT_EQ(counter(Counter::requests), 0u);
  EXPECT_EQ(counter(Counter::requests_malformed), 1u);
  front_->set_state("5");  // and it can still be closed
  ASSERT_TRUE(rig_.run_until([&] { return backend_state() == "5"; }));
  front_->set_state("6");
  ASSERT_TRUE(rig_.run_until([&] { return backend_state() == "6"; }));
}

TEST_P(HostileFront, AnEventStormWithoutRequestsDoesNoWork_XSA332) {
  connect();
  for (int i = 0; i < 1000; ++i) {
    rig_.guest(kGuest).notify(front_->port());
    rig_.turn();
  }
  EXPECT_EQ(counter(Counter::requests), 0u);
  EXPECT_EQ(counter(Counter::notifications_sent), 0u);
  EXPECT_EQ(ask(request(Op::read, 1), {whole_page(front_->grant(data_, 0))}).status, ResponseStatus::okay);
}

TEST_P(HostileFront, AStateFloodCostsTheWatchesNotTheBackend_XSA349) {
  connect();
  for (int i = 0; i < 10000; ++i) front_->set_state(i % 2 == 0 ? "3" : "4");
  ASSERT_TRUE(rig_.run_until([&] { return backend_state() == "4"; }));
  EXPECT_EQ(ask(request(Op::read, 1), {whole_page(front_->grant(data_, 0))}).status, ResponseStatus::okay);
}

class NegotiationValues : public testing::TestWithParam<std::pair<std::string, std::string>> {};

TEST_P(NegotiationValues, AreRefusedWithAReasonAndTheDeviceCanConnectAgain) {
  ModelRig rig(3);
  rig.add_bare_guest(kGuest, {});
  const auto state = [&] { return rig.dom0_keys().read(ModelRig::backend_path(kGuest) + "/state").value_or(""); };
  ASSERT_TRUE(rig.run_until([&] { return state() == "2"; }));
  {
    Front front(rig.guest(kGuest), rig.guest_keys(kGuest), ModelRig::frontend_path(kGuest));
    front.publish();
    front.write(GetParam().first, GetParam().second);
    ASSERT_TRUE(rig.run_until([&] { return state() == "5" || state() == "6"; }));
    EXPECT_NE(rig.dom0_keys().read(ModelRig::backend_path(kGuest) + "/xblk-error").value_or(""), "");
    front.set_state("6");
  }
  ASSERT_TRUE(rig.run_until([&] { return state() == "6"; }));
  for (const auto& key : {"ring-page-order", "multi-queue-num-queues", "queue-0"}) {
    ASSERT_TRUE(rig.guest_keys(kGuest).remove(ModelRig::frontend_path(kGuest) + "/" + key));
  }
  Front again(rig.guest(kGuest), rig.guest_keys(kGuest), ModelRig::frontend_path(kGuest));
  again.set_state("1");
  ASSERT_TRUE(rig.run_until([&] { return state() == "2"; }));
  again.publish();
  ASSERT_TRUE(rig.run_until([&] { return state() == "4"; }))
      << rig.dom0_keys().read(ModelRig::backend_path(kGuest) + "/xblk-error").value_or("");
  rig.kill_guest(kGuest);
  EXPECT_EQ(rig.usage(), hypervisor::HypervisorUsage{});
}
INSTANTIATE_TEST_SUITE_P(Values, NegotiationValues,
                         testing::Values(std::pair{"ring-page-order", "31"}, std::pair{"ring-page-order", "64"},
                                         std::pair{"ring-page-order", "-1"}, std::pair{"multi-queue-num-queues", "0"},
                                         std::pair{"multi-queue-num-queues", "1000000000"},
                                         std::pair{"ring-ref", "4294967295"}, std::pair{"ring-ref", "junk"},
                                         std::pair{"event-channel", "999"}, std::pair{"protocol", "vax-abi"}),
                         [](const auto& test) {
                           std::string name = test.param.first + "_" + test.param.second;
                           std::replace_if(
                               name.begin(), name.end(),
                               [](char c) { return std::isalnum(static_cast<unsigned char>(c)) == 0; }, '_');
                           return name;
                         });

}  // namespace
}  // namespace xblk::scenarios
