// Backends that attack the frontend: the device ends with a reason, every I/O gets one completion, and no page that the
// backend still holds comes back into use. Test names carry the class of the security list.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "drivers/peer/scripted_back.hpp"
#include "drivers/scenarios/model_rig.hpp"

namespace xblk::scenarios {
namespace {

using blkfront::Completion;
using blkfront::IoOp;
using blkif::Op;
using blkif::ResponseStatus;

constexpr DomId kGuest{1};
constexpr std::uint32_t kGuestPages = 512;
constexpr const char* kFrontPath = "/local/domain/1/device/vbd/51712";
constexpr const char* kBackPath = "/local/domain/0/backend/scripted/1/51712";

class HostileBack : public testing::Test {
 protected:
  using Guest = hypervisor::InProcessGuest<env::VirtualEnv>;
  using Device = blkfront::Device<ModelPlatform>;

  void SetUp() override {
    guest_ = std::move(Guest::create(hypervisor_, kGuest, kGuestPages).value());
    ASSERT_TRUE(back_keys_.write(std::string(kBackPath) + "/state", "1"));
    ASSERT_TRUE(front_keys_.write(std::string(kFrontPath) + "/backend", kBackPath));
    ASSERT_TRUE(front_keys_.write(std::string(kFrontPath) + "/backend-id", "0"));
    back_ = std::make_unique<peer::ScriptedBack<ModelPlatform>>(dom0_, back_keys_, kBackPath, kFrontPath, kGuest);
    device_ = make_device();
  }
  std::unique_ptr<Device> make_device() {
    return std::make_unique<Device>(env_, *guest_, front_keys_, Device::Options{kFrontPath, {}},
                                    StatisticsFile::anonymous(End::front, blkif::kQueuesMax));
  }

  void connect(bool persistent) {
    back_->offer().persistent = persistent;
    ASSERT_TRUE(device_->start());
    back_->publish_limits();
    device_->turn();
    ASSERT_EQ(back_->frontend_state(), "3") << device_->failure();
    back_->connect();
    device_->turn();
    ASSERT_TRUE(device_->connected()) << device_->failure();
    channel_ = device_->open_channel(0).value();
    buffer_ = device_->allocate_buffers(Bytes(kPageSize)).value();
  }

  blkif::Request ask(IoOp op) {
    EXPECT_TRUE(channel_->submit({op, Sectors(0), Sectors(8), buffer_.data(), this}));
    channel_->commit();
    const auto request = back_->take_request();
    EXPECT_TRUE(request.has_value());
    return request.value_or(blkif::Request{});
  }
  std::optional<Completion> completion() {
    Completion one;
    return channel_->reap(0, {&one, 1}, Nanos(0)) == 1 ? std::optional(one) : std::nullopt;
  }
  blkif::Response okay(const blkif::Request& request) { return {request.id, request.op, ResponseStatus::okay}; }

  // The one I/O in flight has failed, no other is taken, and the device closes by itself with a reason.
  void expect_ended(const std::string& reason) {
    const auto failed = completion();
    ASSERT_TRUE(failed.has_value());
    EXPECT_EQ(failed->error, EIO);
    EXPECT_FALSE(completion().has_value());
    const auto refused = channel_->submit({IoOp::read, Sectors(0), Sectors(8), buffer_.data(), nullptr});
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, ENODEV);
    device_->turn();
    EXPECT_EQ(back_->frontend_state(), "6");
    EXPECT_NE(error_key().find(reason), std::string::npos) << error_key();
  }
  void close_backend() {
    back_->release();
    back_->set_state("6");
    device_->turn();
    ASSERT_TRUE(device_->closed());
  }
  std::string error_key() { return back_keys_.read(std::string(kFrontPath) + "/xblk-error").value_or(""); }
  // Every page of the guest is free, so none is granted or forgotten.
  bool all_pages_are_free() {
    auto all = guest_->allocate_pages(kDom0, kGuestPages);
    if (all) guest_->free_pages(*all);
    return all.has_value();
  }

  env::VirtualEnv env_;
  hypervisor::Hypervisor<env::VirtualEnv> hypervisor_{env_};
  hypervisor::Dom0<env::VirtualEnv> dom0_{hypervisor_};
  env::MemoryStore tree_;
  env::MemoryKeys back_keys_{tree_, kDom0};
  env::MemoryKeys front_keys_{tree_, kGuest};
  std::unique_ptr<Guest> guest_;
  std::unique_ptr<peer::ScriptedBack<ModelPlatform>> back_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<blkfront::Channel> channel_;
  std::span<std::byte> buffer_;
};

struct Lie {
  const char* name;
  std::function<void(peer::ScriptedBack<ModelPlatform>&, const blkif::Request&)> tell;
};
class HostileResponse : public HostileBack, public testing::WithParamInterface<Lie> {};

TEST_P(HostileResponse, EndsTheDeviceAndEverythingIsGivenBack_XSA155) {
  for (const bool persistent : {true, false}) {
    SCOPED_TRACE(persistent ? "persistent" : "map");
    ASSERT_NO_FATAL_FAILURE(connect(persistent));
    GetParam().tell(*back_, ask(IoOp::read));
    expect_ended("broke the ring protocol");
    close_backend();
    device_->free_buffers(buffer_);
    EXPECT_TRUE(all_pages_are_free());
    channel_.reset();
    // A new driver on the same vbd starts clean.
    back_ = std::make_unique<peer::ScriptedBack<ModelPlatform>>(dom0_, back_keys_, kBackPath, kFrontPath, kGuest);
    device_ = make_device();
  }
}
INSTANTIATE_TEST_SUITE_P(
    Lies, HostileResponse,
    testing::Values(Lie{"id_that_was_never_sent",
                        [](auto& back, const auto& request) {
                          back.respond({request.id + (1ULL << 16), request.op, ResponseStatus::okay});
                        }},
                    Lie{"id_beyond_the_ring",
                        [](auto& back, const auto& request) {
                          back.respond({request.id | 0xffff, request.op, ResponseStatus::okay});
                        }},
                    Lie{"id_zero",
                        [](auto& back, const auto& request) {
                          back.respond({0, request.op, {}});
                        }},
                    Lie{"other_operation",
                        [](auto& back, const auto& request) {
                          back.respond({request.id, Op::write, ResponseStatus::okay});
                        }},
                    Lie{"rsp_prod_jumps", [](auto& back, const auto&) { back.set_rsp_prod(1000); }},
                    Lie{"rsp_prod_goes_back", [](auto& back, const auto&) { back.set_rsp_prod(~0u); }}),
    [](const auto& test) { return std::string(test.param.name); });

TEST_F(HostileBack, TheSameResponseTwiceCompletesOneIoAndEndsTheDevice) {
  ASSERT_NO_FATAL_FAILURE(connect(true));
  const auto request = ask(IoOp::read);
  const auto second = ask(IoOp::write);
  back_->respond(okay(request));
  back_->respond(okay(request));
  const auto first = completion();
  ASSERT_TRUE(first.has_value());
  EXPECT_EQ(first->error, 0);
  EXPECT_NE(second.id, request.id);
  expect_ended("broke the ring protocol");
}

TEST_F(HostileBack, RequestsThatWereNotPushedWhenTheDeviceBrokeAreNeverPushed) {
  ASSERT_NO_FATAL_FAILURE(connect(true));
  const auto request = ask(IoOp::read);
  ASSERT_TRUE(channel_->submit({IoOp::write, Sectors(8), Sectors(8), buffer_.data(), nullptr}));
  back_->respond({request.id + (1ULL << 16), request.op, ResponseStatus::okay});
  EXPECT_EQ(completion()->error, EIO);
  EXPECT_EQ(completion()->error, EIO);
  channel_->commit();
  EXPECT_FALSE(back_->take_request().has_value()) << "its caller has been told that it failed";
}

TEST_F(HostileBack, APageThatTheBackendKeepsIsNeverReused_XSA396) {
  ASSERT_NO_FATAL_FAILURE(connect(false));
  const auto request = ask(IoOp::read);
  const auto kept = back_->map(request.direct_segments()[0].gref);
  ASSERT_EQ(kept.status, platform::GrantStatus::okay);
  const auto frame = guest_->frame_of(buffer_.data());
  back_->respond(okay(request));
  expect_ended("a grant it did not give back");
  close_backend();
  EXPECT_NE(error_key().find("still holds 1"), std::string::npos) << error_key();
  device_->free_buffers(buffer_);
  while (const auto page = guest_->allocate_pages(kDom0, 1)) EXPECT_NE(page->first_frame, *frame);
  back_->unmap(kept);
}

TEST_F(HostileBack, ABackendThatClosesButKeepsTheRingIsReportedAndTheRingStaysOutOfUse_XSA396) {
  ASSERT_NO_FATAL_FAILURE(connect(true));
  device_->request_close();
  device_->turn();
  back_->set_state("6");
  device_->turn();
  ASSERT_TRUE(device_->closed());
  EXPECT_NE(error_key().find("still holds 1"), std::string::npos) << error_key();
  device_->free_buffers(buffer_);
  EXPECT_FALSE(all_pages_are_free());
}

TEST_F(HostileBack, EventsWithoutResponsesCostNothingButThemselves_XSA391) {
  ASSERT_NO_FATAL_FAILURE(connect(true));
  const auto request = ask(IoOp::read);
  for (int i = 0; i < 1000; ++i) {
    back_->notify();
    EXPECT_FALSE(completion().has_value());
  }
  back_->respond(okay(request));
  const auto done = completion();
  ASSERT_TRUE(done.has_value());
  EXPECT_EQ(done->error, 0);
}

TEST_F(HostileBack, ADriverWhosePredecessorDiedWaitsUntilTheBackendHasClosed) {
  back_->set_state("4");
  ASSERT_TRUE(device_->start());
  device_->turn();
  EXPECT_EQ(back_->frontend_state(), "6") << "not Initialising: the backend serves the old rings";
  back_->set_state("6");
  device_->turn();
  EXPECT_EQ(back_->frontend_state(), "1");
  back_->publish_limits();
  device_->turn();
  EXPECT_EQ(back_->frontend_state(), "3");
}

class HostileProperty : public HostileBack, public testing::WithParamInterface<std::pair<const char*, const char*>> {};

TEST_P(HostileProperty, IsRefusedWithItsKeyAndLeavesNothing) {
  ASSERT_TRUE(device_->start());
  back_->publish_limits();
  device_->turn();
  back_->connect();
  back_->write(GetParam().first, GetParam().second);
  device_->turn();
  EXPECT_FALSE(device_->connected());
  EXPECT_TRUE(device_->closed());
  EXPECT_NE(device_->failure().find(GetParam().first), std::string::npos) << device_->failure();
  back_->release();
  device_.reset();
  EXPECT_TRUE(all_pages_are_free());
}
INSTANTIATE_TEST_SUITE_P(Values, HostileProperty,
                         testing::Values(std::pair{"sector-size", "0"}, std::pair{"sector-size", "513"},
                                         std::pair{"sector-size", "65536"}, std::pair{"sectors", "0"},
                                         std::pair{"sectors", "junk"}),
                         [](const auto& test) {
                           std::string name = std::string(test.param.first) + "_" + test.param.second;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace xblk::scenarios
