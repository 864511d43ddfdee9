// For tests: a frontend on the emulated hypervisor in virtual time, with a scripted backend on its one queue. What
// shall happen while the frontend waits is scheduled on its clock.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "drivers/base/check.hpp"
#include "drivers/blkfront/device.hpp"
#include "drivers/env/virtual/memory_store.hpp"
#include "drivers/env/virtual/virtual_env.hpp"
#include "drivers/hypervisor/dom0.hpp"
#include "drivers/hypervisor/hypervisor.hpp"
#include "drivers/hypervisor/in_process_guest.hpp"
#include "drivers/peer/scripted_back.hpp"

namespace xblk::blkfront {

class TimedEnv : public env::VirtualEnv {
 public:
  // Runs once somebody has slept, or polled, that long.
  void at(Nanos since_start, std::function<void()> happening) {
    schedule_.emplace(Instant(since_start.value()), std::move(happening));
  }
  // Without one, an adaptive waiter does not poll.
  void have_a_spare_cpu() { spare_cpu_ = true; }

  [[nodiscard]] bool cpus_oversubscribed() const { return !spare_cpu_; }
  void relax() { pass_time(now() + micros(1)); }

  // False: nothing was due until then.
  bool pass_time(Instant until) {
    const auto next = schedule_.begin();
    if (next == schedule_.end() || next->first > until) {
      XBLK_CHECK(until != Instant::never(), "nothing is scheduled that could end an endless sleep");
      advance_to(until);
      return false;
    }
    const auto [when, happening] = *next;
    schedule_.erase(next);
    advance_to(when);
    happening();
    return true;
  }

  class WaitSet {
   public:
    explicit WaitSet(TimedEnv& env) : env_(env) {}
    Status add(Waitable source, std::uint64_t token) {
      sources_.emplace_back(source, token);
      return {};
    }
    void remove(Waitable source) {
      std::erase_if(sources_, [source](const auto& entry) { return entry.first == source; });
    }
    void wait(Instant deadline, std::vector<std::uint64_t>& ready) {
      do {
        for (const auto& [source, token] : sources_) {
          if (*source) ready.push_back(token);
        }
        if (!ready.empty() || std::exchange(woken_, false)) return;
      } while (env_.pass_time(deadline));
    }
    void wake() { woken_ = true; }

   private:
    TimedEnv& env_;
    std::vector<std::pair<Waitable, std::uint64_t>> sources_;
    bool woken_ = false;
  };

 private:
  std::multimap<Instant, std::function<void()>> schedule_;
  bool spare_cpu_ = false;
};

struct TestPlatform {
  using Env = TimedEnv;
  using Front = hypervisor::InProcessGuest<Env>;
  using Back = hypervisor::Dom0<Env>;
  using Keys = env::MemoryKeys;
};
static_assert(platform::Platform<TestPlatform>);

class FrontendTest : public testing::Test {
 protected:
  using Back = peer::ScriptedBack<TestPlatform>;

  void SetUp() override {
    ASSERT_TRUE(back_keys_.write(std::string(kBackPath) + "/state", "1"));
    ASSERT_TRUE(front_keys_.write(std::string(kFrontPath) + "/backend", kBackPath));
    ASSERT_TRUE(front_keys_.write(std::string(kFrontPath) + "/backend-id", "0"));
    back_ = make_backend();
    back_->offer().limits.indirect_segments_max = blkif::kIndirectSegmentsMax;
  }

  std::unique_ptr<Back> make_backend() {
    return std::make_unique<Back>(dom0_, back_keys_, kBackPath, kFrontPath, kGuest);
  }

  // What the backend offers is set before, in back_->offer().
  void connect(const blkif::PolicyMap& policy = {}) {
    device_ = std::make_unique<Device<TestPlatform>>(env_, *guest_, front_keys_,
                                                     Device<TestPlatform>::Options{kFrontPath, policy},
                                                     StatisticsFile::anonymous(End::front, blkif::kQueuesMax));
    ASSERT_TRUE(device_->start());
    negotiate();
    channel_ = device_->open_channel(0).value();
    buffer_ = device_->allocate_buffers(Bytes(kBufferPages * kPageSize)).value();
  }
  void negotiate() {
    back_->publish_limits();
    device_->turn();
    ASSERT_EQ(back_->frontend_state(), "3") << device_->failure();
    back_->connect();
    device_->turn();
    ASSERT_TRUE(device_->connected()) << device_->failure();
  }

  // An I/O on the buffer from its first byte on; `cookie` 1, 2, 3... in the order of submission.
  Status submit(IoOp op, std::uint64_t sector, std::uint64_t sectors, bool secure = false) {
    Io io{op, Sectors(sector), Sectors(sectors), buffer_.data(), nullptr, secure};
    io.cookie = reinterpret_cast<void*>(submitted_ + 1);
    auto status = channel_->submit(io);
    if (status) ++submitted_;
    channel_->commit();
    return status;
  }
  // The same, and what the backend gets of it.
  blkif::Request ask(IoOp op, std::uint64_t sector, std::uint64_t sectors, bool secure = false) {
    const auto status = submit(op, sector, sectors, secure);
    EXPECT_TRUE(status) << status.error().message;
    return take();
  }
  blkif::Request take() {
    const auto request = back_->take_request();
    EXPECT_TRUE(request.has_value());
    return request.value_or(blkif::Request());
  }
  bool answer(const blkif::Request& request, blkif::ResponseStatus status = blkif::ResponseStatus::okay) {
    return back_->answer({request.id, request.op, status});
  }
  // The error of the next completion; nothing: there is none.
  std::optional<int> completion() {
    Completion one;
    if (channel_->reap(0, {&one, 1}, Nanos(0)) == 0) return std::nullopt;
    return one.error;
  }

  std::uint64_t count(Counter counter) { return device_->statistics().queues()[0].get(counter); }
  std::uint64_t gauge(Gauge gauge) { return device_->statistics().queues()[0].get(gauge); }
  std::string front_key(const std::string& name) {
    return front_keys_.read(std::string(kFrontPath) + "/" + name).value_or("");
  }

  // The bytes of a page as the backend sees them; nothing: it has no access.
  std::optional<std::vector<std::byte>> see(GrantRef gref) {
    std::vector<std::byte> bytes(kPageSize);
    platform::CopyOp op{platform::CopyOp::Direction::from_grant, gref, 0, kPageSize, bytes.data()};
    platform::LockWait ignored;
    dom0_.copy(kGuest, {&op, 1}, ignored);
    if (op.status != platform::GrantStatus::okay) return std::nullopt;
    return bytes;
  }
  // Data of a read, as a backend delivers them.
  void deliver(const blkif::Segment& segment, std::byte value) {
    std::vector<std::byte> bytes(segment.sectors() * kSectorSize, value);
    platform::CopyOp op{platform::CopyOp::Direction::to_grant, segment.gref,
                        static_cast<std::uint16_t>(segment.first_sector * kSectorSize),
                        static_cast<std::uint16_t>(bytes.size()), bytes.data()};
    platform::LockWait ignored;
    dom0_.copy(kGuest, {&op, 1}, ignored);
    EXPECT_EQ(op.status, platform::GrantStatus::okay);
  }

  // Afterwards every page of the guest is free, so none is granted or forgotten.
  void TearDown() override {
    if (device_ == nullptr) return;
    channel_.reset();
    if (!device_->closed()) close_and_expect_no_grants();
    back_->release();
    if (!buffer_.empty()) device_->free_buffers(buffer_);
    device_.reset();
    const auto all = guest_->allocate_pages(kDom0, kGuestPages);
    EXPECT_TRUE(all) << "pages are missing";
  }
  void close_and_expect_no_grants() {
    device_->request_close();
    device_->turn();
    back_->release();
    back_->set_state("6");
    device_->turn();
    EXPECT_TRUE(device_->closed()) << device_->failure();
    for (const Gauge g : {Gauge::grants_in_use, Gauge::persistent_cached, Gauge::requests_in_flight}) {
      EXPECT_EQ(gauge(g), 0u) << kGaugeNames[static_cast<std::size_t>(g)];
    }
    EXPECT_EQ(count(Counter::grants_issued), count(Counter::grants_ended));
  }

  static constexpr DomId kGuest{1};
  static constexpr std::uint32_t kGuestPages = 2048;
  static constexpr std::uint32_t kBufferPages = 64;
  static constexpr const char* kFrontPath = "/local/domain/1/device/vbd/51712";
  static constexpr const char* kBackPath = "/local/domain/0/backend/scripted/1/51712";

  TimedEnv env_;
  hypervisor::Hypervisor<TimedEnv> hypervisor_{env_};
  hypervisor::Dom0<TimedEnv> dom0_{hypervisor_};
  env::MemoryStore tree_;
  env::MemoryKeys back_keys_{tree_, kDom0};
  env::MemoryKeys front_keys_{tree_, kGuest};
  std::unique_ptr<TestPlatform::Front> guest_ =
      std::move(*TestPlatform::Front::create(hypervisor_, kGuest, kGuestPages));
  std::unique_ptr<Back> back_;
  std::unique_ptr<Device<TestPlatform>> device_;
  std::unique_ptr<Channel> channel_;
  std::span<std::byte> buffer_;
  std::uintptr_t submitted_ = 0;
};

}  // namespace xblk::blkfront
