// What the conformance suite cannot see: limits, the event page, and bells whose other end is rung by force.
#include "drivers/hypervisor/event_channels.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <memory>
#include <vector>

#include "drivers/env/real/real_env.hpp"
#include "drivers/env/virtual/virtual_env.hpp"

namespace xblk::hypervisor {
namespace {

using env::RealEnv;
using Bell = EventBell<RealEnv>;

bool ready(RealEnv& env, int waitable) {
  RealEnv::WaitSet set(env);
  EXPECT_TRUE(set.add(waitable, 1));
  std::vector<std::uint64_t> tokens;
  set.wait(env.now(), tokens);
  return !tokens.empty();
}

class EventChannelsTest : public ::testing::Test {
 protected:
  static constexpr std::uint32_t kPorts = 5;
  using Channels = EventChannels<RealEnv>;

  Result<EventPort> allocate(DomId remote = kDom0) {
    return channels_.allocate_unbound(*guest_, remote, std::move(*Bell::create()), std::move(*Bell::create()));
  }
  [[nodiscard]] bool pending(EventPort port) const { return (page_->front() >> port.value() & 1) != 0; }

  RealEnv env_;
  Channels channels_{env_};
  std::shared_ptr<std::array<std::uint64_t, 512>> page_ = std::make_shared<std::array<std::uint64_t, 512>>();
  Channels::PortsPtr dom0_ = channels_.add_domain(kDom0, kPorts, nullptr);
  Channels::PortsPtr guest_ = channels_.add_domain(
      DomId(1), kPorts, std::shared_ptr<std::byte>(page_, reinterpret_cast<std::byte*>(page_->data())));
};

TEST_F(EventChannelsTest, PortZeroIsNeverGivenOutAndThePortsEndAtTheLimit) {
  for (std::uint32_t i = 1; i < kPorts; ++i) EXPECT_EQ(allocate().value(), EventPort(i));
  EXPECT_EQ(allocate().error().code, ENOSPC);
  channels_.close(*guest_, EventPort(3));
  EXPECT_EQ(allocate().value(), EventPort(3));
}

TEST_F(EventChannelsTest, PendingBitIsInTheGuestsPageAndSavesFurtherRings) {
  const EventPort port = *allocate();
  const EventPort bound = *channels_.bind_interdomain(*dom0_, DomId(1), port);
  EXPECT_FALSE(pending(port));
  for (int i = 0; i < 3; ++i) dom0_->notify(bound);
  EXPECT_TRUE(pending(port));
  EXPECT_TRUE(guest_->consume(port));
  EXPECT_FALSE(pending(port));
  EXPECT_FALSE(ready(env_, guest_->waitable(port)));
  // A bit that the guest sets by itself silences its own channel and nothing else.
  page_->front() = ~std::uint64_t{0};
  dom0_->notify(bound);
  EXPECT_FALSE(ready(env_, guest_->waitable(port)));
}

TEST_F(EventChannelsTest, ChannelEndsWithTheSideThatAllocatedIt) {
  const EventPort port = *allocate();
  const EventPort bound = *channels_.bind_interdomain(*dom0_, DomId(1), port);
  channels_.close(*guest_, port);
  dom0_->notify(bound);
  EXPECT_FALSE(pending(port)) << "nobody listens any more";
  EXPECT_FALSE(channels_.bind_interdomain(*guest_, kDom0, bound)) << "what was bound cannot be bound from the far side";
  EXPECT_EQ(channels_.open_ports(), 1u);
  channels_.close(*dom0_, bound);
  EXPECT_EQ(channels_.open_ports(), 0u);
}

TEST_F(EventChannelsTest, PendingBitOfAnEarlierChannelDoesNotShowInTheNext) {
  const EventPort port = *allocate();
  const EventPort bound = *channels_.bind_interdomain(*dom0_, DomId(1), port);
  dom0_->notify(bound);
  channels_.close(*dom0_, bound);
  channels_.close(*guest_, port);
  ASSERT_EQ(allocate().value(), port);
  EXPECT_FALSE(guest_->consume(port));
}

TEST_F(EventChannelsTest, RemovedDomainLeavesItsPeersUnbound) {
  const EventPort port = *allocate();
  const EventPort bound = *channels_.bind_interdomain(*dom0_, DomId(1), port);
  channels_.remove_domain(DomId(1));
  dom0_->notify(bound);
  EXPECT_EQ(channels_.open_ports(), 1u);
  channels_.close(*dom0_, bound);
  channels_.close(*dom0_, bound);  // again: no error, as EVTCHNOP_close of a closed port is none of our state
  EXPECT_EQ(channels_.open_ports(), 0u);
}

// A hostile guest holds the descriptor and rings whatever the mask says.
TEST(RealBell, MaskHoldsAgainstTheDescriptorItself) {
  RealEnv env;
  auto bell = std::move(*Bell::create());
  const int waitable = bell.waitable();
  bell.mask();
  const std::uint64_t one = 1;
  for (int i = 0; i < 100; ++i) ASSERT_EQ(::write(bell.sender_fd(), &one, sizeof one), 8);
  EXPECT_FALSE(ready(env, waitable));
  bell.unmask();
  EXPECT_TRUE(ready(env, waitable));
  EXPECT_TRUE(bell.consume());
  EXPECT_FALSE(ready(env, waitable));
}

TEST(RealBell, PipeCarriesOneEventHoweverOftenRung) {
  RealEnv env;
  auto bell = std::move(*Bell::create_for_remote_receiver());
  auto receiver = Bell::adopt_receiver(::dup(bell.receiver_fd()));
  EXPECT_FALSE(receiver.consume());
  for (int i = 0; i < 10; ++i) bell.ring();
  EXPECT_TRUE(ready(env, receiver.waitable()));
  EXPECT_TRUE(receiver.consume());
  EXPECT_FALSE(receiver.consume());
  EXPECT_FALSE(ready(env, receiver.waitable()));
}

TEST(VirtualBell, HoldsWhatIsRungWhileMasked) {
  auto bell = std::move(*EventBell<env::VirtualEnv>::create());
  bell.ring();
  bell.mask();
  EXPECT_FALSE(*bell.waitable());
  bell.ring();
  bell.mask();  // twice is once
  EXPECT_FALSE(*bell.waitable());
  bell.unmask();
  EXPECT_TRUE(*bell.waitable());
  EXPECT_TRUE(bell.consume());
  EXPECT_FALSE(bell.consume());
}

}  // namespace
}  // namespace xblk::hypervisor
