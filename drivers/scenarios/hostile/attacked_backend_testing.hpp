// A whole backend device in the model, its frontend played by the test: for attacks on negotiation and life cycle.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "drivers/peer/scripted_front.hpp"
#include "drivers/scenarios/model_rig.hpp"

namespace xblk::scenarios {

class AttackedBackendTest : public testing::Test {
 protected:
  using Front = peer::ScriptedFront<ModelPlatform>;
  static constexpr DomId kGuest{1};

  explicit AttackedBackendTest(std::uint64_t seed = 7, hypervisor::HypervisorConfig config = {}) : rig_(seed, config) {}

  // The backend at InitWait, the frontend about to publish.
  void offer(const VbdOptions& options = {}) {
    rig_.add_bare_guest(kGuest, options);
    front_ = std::make_unique<Front>(rig_.guest(kGuest), rig_.guest_keys(kGuest), ModelRig::frontend_path(kGuest));
    expect_state("2");
  }
  void expect_state(const std::string& wanted) {
    EXPECT_TRUE(rig_.run_until([&] { return state() == wanted; })) << "state " << state() << ": " << error();
  }
  std::string key(const std::string& name) {
    return rig_.dom0_keys().read(ModelRig::backend_path(kGuest) + "/" + name).value_or("");
  }
  std::string state() { return key("state"); }
  std::string error() { return key("xblk-error"); }
  // As an honest frontend: closes, takes its rings back, starts again, and does one read.
  void reconnect_and_read() {
    front_->set_state("6");
    expect_state("6");
    EXPECT_TRUE(front_->withdraw());
    for (const auto* stale : {"ring-page-order", "multi-queue-num-queues", "queue-0", "queue-1", "ring-ref",
                              "ring-ref0", "ring-ref1", "event-channel"}) {
      front_->remove(stale);
    }
    front_->offer() = {};
    front_->set_state("1");
    expect_state("2");
    front_->publish();
    expect_state("4");
    read();
  }
  void read() {
    const auto data = front_->allocate(1);
    const blkif::Segment segment{front_->grant(data, 0), 0, 7};
    blkif::Request request;
    request.id = 0x1122334455667788;
    request.segment_count = 1;
    front_->put(request, {&segment, 1});
    front_->push();
    std::optional<blkif::Response> response;
    ASSERT_TRUE(rig_.run_until([&] { return (response = front_->take_response()).has_value(); }));
    EXPECT_EQ(*response, (blkif::Response{request.id, request.op, blkif::ResponseStatus::okay}));
  }
  QueueCounters& counters() {
    return rig_.backends().devices().at(ModelRig::backend_path(kGuest))->statistics().queues()[0];
  }

  void TearDown() override {
    // Whatever was done to it: the guest goes, and dom0 holds nothing of it.
    front_.reset();
    rig_.kill_guest(kGuest);
    EXPECT_EQ(rig_.usage(), hypervisor::HypervisorUsage{});
  }

  ModelRig rig_;
  std::unique_ptr<Front> front_;
};

}  // namespace xblk::scenarios
