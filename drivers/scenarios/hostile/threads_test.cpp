// Attacks that need a second thread: shared memory changes while a driver reads it, rings come and go under a worker
// that runs, responses arrive while the frontend leaves. Run under ThreadSanitizer too. Numbers, never times, are
// asserted.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "drivers/base/prng.hpp"
#include "drivers/blkback/connection.hpp"
#include "drivers/blkback/worker.hpp"
#include "drivers/blkfront/device.hpp"
#include "drivers/peer/front_player.hpp"
#include "drivers/peer/scripted_back.hpp"
#include "drivers/peer/scripted_front.hpp"
#include "drivers/scenarios/hostile/data_paths.hpp"
#include "drivers/scenarios/hostile/threads_platform.hpp"
#include "drivers/store/store.hpp"

namespace xblk::scenarios {
namespace {

using blkif::Op;
using peer::front::Push;
using peer::front::Put;

constexpr DomId kGuest{1};
constexpr std::uint32_t kGuestPages = 512;
constexpr hypervisor::DomainLimits kGuestLimits{.grant_frames = 1, .ports = 8};

// Does something over and over, until the end of its scope.
class Attacker {
 public:
  explicit Attacker(std::function<void()> attack)
      : thread_([this, attack = std::move(attack)] {
          while (!stop_.load(std::memory_order_relaxed)) attack();
        }) {}
  ~Attacker() {
    stop_.store(true, std::memory_order_relaxed);
    thread_.join();
  }
  Attacker(const Attacker&) = delete;
  Attacker& operator=(const Attacker&) = delete;

 private:
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

// One ring of the real backend on a worker thread; the frontend is the test's.
class ThreadedRing {
 public:
  explicit ThreadedRing(const blkif::BackPolicy& policy) : policy_(policy) {
    front_.build_rings();
    thread_ = std::thread([this] { worker_.run(stop_); });
  }
  ~ThreadedRing() {
    disconnect();
    stop_ = true;
    worker_.wake();
    thread_.join();
  }
  ThreadedRing(const ThreadedRing&) = delete;
  ThreadedRing& operator=(const ThreadedRing&) = delete;

  void connect() {
    blkback::Connection<ThreadsPlatform>::Agreement agreement{kGuest, front_.offer(), policy_, {1, 0, 256}, false};
    auto opened =
        blkback::Connection<ThreadsPlatform>::open(env_, dom0_, std::move(agreement), *store_, {&counters_, 1});
    ASSERT_TRUE(opened) << opened.error().message;
    connection_ = std::move(*opened);
    blkback::RingRunner<int>* const runners[] = {&worker_};
    connection_->start(runners);
  }
  void disconnect() { connection_.reset(); }
  // To fresh rings.
  void reconnect() {
    disconnect();
    ASSERT_TRUE(front_.withdraw());
    front_.build_rings();
    connect();
  }

  peer::ScriptedFront<ThreadsPlatform>& front() { return front_; }
  peer::FrontPlayer<ThreadsPlatform>& player() { return player_; }
  [[nodiscard]] std::uint64_t count(Counter counter) const { return counters_.get(counter); }
  [[nodiscard]] std::uint64_t gauge(Gauge gauge) const { return counters_.get(gauge); }
  [[nodiscard]] hypervisor::HypervisorUsage usage() { return hypervisor_.usage(); }
  ThreadsEnv& env() { return env_; }

 private:
  blkif::BackPolicy policy_;
  ThreadsEnv env_;
  hypervisor::Hypervisor<ThreadsEnv> hypervisor_{env_};
  hypervisor::Dom0<ThreadsEnv> dom0_{hypervisor_};
  env::MemoryStore tree_;
  env::MemoryKeys keys_{tree_, kGuest};
  std::unique_ptr<store::Store> store_ = std::move(*store::open_store("ram:4MiB"));
  std::unique_ptr<hypervisor::InProcessGuest<ThreadsEnv>> guest_ =
      std::move(*hypervisor::InProcessGuest<ThreadsEnv>::create(hypervisor_, kGuest, kGuestPages, kGuestLimits));
  peer::ScriptedFront<ThreadsPlatform> front_{*guest_, keys_, "/front"};
  peer::FrontPlayer<ThreadsPlatform> player_{front_, {}, [] {}};
  QueueCounters counters_;
  blkback::Worker<ThreadsEnv> worker_{env_};
  std::atomic<bool> stop_{false};
  std::thread thread_;
  std::unique_ptr<blkback::Connection<ThreadsPlatform>> connection_;
};

void flip(std::byte* shared, std::uint8_t value) {
  platform::copy_to_shared(shared, &value, 1);
}

// ---- XSA-155: the request changes while the backend reads it
// ---------------------------------------------------------

class BackendXsa155Threads : public testing::TestWithParam<NamedDataPath> {};
INSTANTIATE_TEST_SUITE_P(Paths, BackendXsa155Threads, testing::ValuesIn(kDataPaths), name_of_data_path);

TEST_P(BackendXsa155Threads, RequestFlippedWhileRead) {
  constexpr std::uint32_t kRoundsMin = 150;
  constexpr std::uint32_t kRoundsMax = 50'000;  // on a busy machine the attacker gets a CPU late
  ThreadedRing ring(GetParam().back_policy());
  auto& front = ring.front();
  ring.connect();
  std::byte* const indirect = ring.player().indirect_page().data();
  Prng random(155);
  // A page that is copied is read by the hypervisor; the driver looks at the copy.
  const bool driver_reads_pages = GetParam().persistent() || GetParam().maps_each_request();
  const Attacker attacker([&] {
    // Operation, number of segments, the start of the sector, sectors of the first two segments: what is checked once
    // and used afterwards. In an indirect page, sectors of any segment.
    static constexpr std::array<std::uint8_t, 8> kOffsets = {0, 1, 2, 16, 28, 29, 36, 37};
    static constexpr std::array<std::uint8_t, 8> kValues = {0, 1, 5, 6, 7, 11, 12, 255};
    const auto value = kValues[random.below(kValues.size())];
    flip(front.slot(static_cast<std::uint32_t>(random.below(32))) + kOffsets[random.below(kOffsets.size())], value);
    if (driver_reads_pages) flip(indirect + random.below(256) * 8 + 4 + random.below(2), value);
  });
  std::uint32_t answered = 0;
  std::uint32_t round = 0;
  const auto felt = [&] { return ring.count(Counter::responses_error) > 0; };
  for (; round < kRoundsMin || (!felt() && round < kRoundsMax); ++round) {
    for (std::uint32_t i = 0; i < 32; ++i) {
      // A response covers the first bytes of its slot, which are flipped as well: the id is in what stays.
      const std::uint64_t id = std::uint64_t{round * 32 + i} << 32;
      Put put{.op = i % 2 == 0 ? Op::read : Op::write, .id = id, .parts = {{i % 8}, {(i + 1) % 8}}};
      if (i % 4 == 3) put = Put{.op = Op::write, .id = id, .parts = std::vector<peer::Part>(64), .indirect = true};
      ring.player().play(put);
    }
    ring.player().play(Push{});
    std::vector<bool> seen(32);
    for (int got = 0; got < 32;) {
      const auto response = front.take_response();
      if (!response) {
        ring.env().yield();
        continue;
      }
      ++got;
      ++answered;
      const std::uint64_t number = response->id >> 32;
      ASSERT_EQ(number / 32, round);
      ASSERT_FALSE(seen[number % 32]) << "answered twice";
      seen[number % 32] = true;
    }
  }
  ring.disconnect();
  EXPECT_EQ(ring.count(Counter::requests), round * 32);
  EXPECT_EQ(ring.count(Counter::responses_ok) + ring.count(Counter::responses_error), answered);
  EXPECT_TRUE(felt()) << "no request was hit in " << round << " rounds";
  EXPECT_GT(ring.count(Counter::responses_ok), 0u);
  EXPECT_TRUE(ring.player().pages_between_are_untouched());
  EXPECT_EQ(ring.usage().mappings, 0u);
}

// ---- XSA-350: rings come and go under a worker that may not have looked at them yet
// ----------------------------------

class BackendXsa350Threads : public testing::TestWithParam<NamedDataPath> {};
INSTANTIATE_TEST_SUITE_P(Paths, BackendXsa350Threads, testing::ValuesIn(kDataPaths), name_of_data_path);

TEST_P(BackendXsa350Threads, ConnectAndDisconnectAsFastAsItGoes) {
  constexpr int kRounds = 200;
  ThreadedRing ring(GetParam().back_policy());
  ring.connect();
  for (int round = 0; round < kRounds; ++round) {
    for (std::uint32_t i = 0; i < 32; ++i) ring.player().play(Put{.op = Op::write, .id = i, .parts = {{i % 8}}});
    ring.player().play(Push{});
    // At different moments of the worker: before it wakes, while it works, when it is done.
    for (int i = 0; i < round % 8; ++i) ring.env().yield();
    ring.reconnect();
    EXPECT_EQ(ring.count(Counter::requests), ring.count(Counter::responses_ok)) << "what was taken was answered";
  }
  ring.disconnect();
  EXPECT_EQ(ring.usage().mappings, 0u);
  for (std::size_t g = 0; g < kGaugeCount; ++g) EXPECT_EQ(ring.gauge(static_cast<Gauge>(g)), 0u) << kGaugeNames[g];
}

// ---- the frontend, its backend played by threads
// ---------------------------------------------------------------------

class ThreadedFrontend {
 public:
  static constexpr const char* kFrontPath = "/local/domain/1/device/vbd/51712";
  static constexpr const char* kBackPath = "/local/domain/0/backend/scripted/1/51712";

  explicit ThreadedFrontend(const blkif::PolicyMap& policy) {
    const std::string front = kFrontPath;
    for (const auto& [key, value] : blkif::KeyList{
             {std::string(kBackPath) + "/state", "1"}, {front + "/backend", kBackPath}, {front + "/backend-id", "0"}}) {
      EXPECT_TRUE(back_keys_.write(key, value));
    }
    device_ = std::make_unique<blkfront::Device<ThreadsPlatform>>(
        env_, *guest_, front_keys_, blkfront::Device<ThreadsPlatform>::Options{kFrontPath, policy},
        StatisticsFile::anonymous(End::front, blkif::kQueuesMax));
    EXPECT_TRUE(device_->start());
    back.publish_limits();
    device_->turn();
    back.connect();
    device_->turn();
    EXPECT_TRUE(device_->connected()) << device_->failure();
    channel = device_->open_channel(0).value();
    buffer = device_->allocate_buffers(Bytes(16 * kPageSize)).value();
  }
  // The backend gives everything back; then so does the frontend.
  ~ThreadedFrontend() {
    device_->request_close();
    device_->turn();
    back.release();
    back.set_state("6");
    device_->turn();
    EXPECT_TRUE(device_->closed()) << device_->failure();
    reap();
    EXPECT_EQ(completed, submitted) << "each I/O completes once";
    channel.reset();
    device_->free_buffers(buffer);
    device_.reset();
    EXPECT_TRUE(guest_->allocate_pages(kDom0, kGuestPages)) << "pages are missing";
  }
  ThreadedFrontend(const ThreadedFrontend&) = delete;
  ThreadedFrontend& operator=(const ThreadedFrontend&) = delete;

  void submit(unsigned ios) {
    for (unsigned i = 0; i < ios; ++i) {
      const auto op = i % 2 == 0 ? blkfront::IoOp::read : blkfront::IoOp::write;
      const blkfront::Io io{op, Sectors(i * 8), Sectors(8), buffer.data() + (i % 16) * kPageSize, nullptr};
      if (channel->submit(io)) ++submitted;
    }
    channel->commit();
  }
  // What is there; waits for `min` of them.
  void reap(unsigned min = 0, Nanos timeout = Nanos(0)) {
    std::array<blkfront::Completion, 32> into;
    completed += channel->reap(min, into, timeout);
  }
  blkfront::Device<ThreadsPlatform>& device() { return *device_; }

 private:
  ThreadsEnv env_;
  hypervisor::Hypervisor<ThreadsEnv> hypervisor_{env_};
  hypervisor::Dom0<ThreadsEnv> dom0_{hypervisor_};
  env::MemoryStore tree_;
  env::MemoryKeys back_keys_{tree_, kDom0};
  env::MemoryKeys front_keys_{tree_, kGuest};
  std::unique_ptr<hypervisor::InProcessGuest<ThreadsEnv>> guest_ =
      std::move(*hypervisor::InProcessGuest<ThreadsEnv>::create(hypervisor_, kGuest, kGuestPages, kGuestLimits));
  std::unique_ptr<blkfront::Device<ThreadsPlatform>> device_;

 public:
  peer::ScriptedBack<ThreadsPlatform> back{dom0_, back_keys_, kBackPath, kFrontPath, kGuest};
  std::unique_ptr<blkfront::Channel> channel;
  std::span<std::byte> buffer;
  unsigned submitted = 0;
  unsigned completed = 0;
};

const blkif::PolicyMap kPersistent{};
const blkif::PolicyMap kGrantedPerRequest{{"persistent", "0"}};

TEST(FrontendXsa155Threads, ResponseFlippedWhileRead) {
  for (int device = 0; device < 30; ++device) {
    ThreadedFrontend front(device % 2 == 0 ? kPersistent : kGrantedPerRequest);
    front.submit(16);
    std::vector<blkif::Request> requests;
    while (const auto request = front.back.take_request()) requests.push_back(*request);
    ASSERT_EQ(requests.size(), 16u);
    {
      Prng random(static_cast<std::uint64_t>(device));
      const Attacker attacker([&] {
        flip(front.back.slot(static_cast<std::uint32_t>(random.below(16))) + random.below(12),
             static_cast<std::uint8_t>(random.below(4)));
      });
      for (const auto& request : requests) {
        front.back.respond({request.id, request.op, blkif::ResponseStatus::okay});
        front.reap();
      }
    }
    front.reap();
  }
}

TEST(FrontendXsa391Threads, AStormOfEventsHidesNoResponse) {
  for (const char* polling : {"event", "adaptive"}) {
    ThreadedFrontend front(blkif::PolicyMap{{"polling", polling}});
    for (int round = 0; round < 20; ++round) {
      front.submit(1);
      const auto request = front.back.take_request();
      ASSERT_TRUE(request);
      std::thread backend([&] {
        for (int i = 0; i < 2000; ++i) front.back.notify();
        front.back.respond({request->id, request->op, blkif::ResponseStatus::okay});
      });
      front.reap(1, seconds(60));
      backend.join();
      EXPECT_EQ(front.completed, front.submitted);
    }
  }
}

TEST(FrontendUnplugThreads, ResponsesArriveWhileTheFrontendLeaves) {
  for (int round = 0; round < 40; ++round) {
    ThreadedFrontend front(round % 2 == 0 ? kPersistent : kGrantedPerRequest);
    front.submit(16);
    std::thread backend([&] {
      while (const auto request = front.back.take_request()) {
        front.back.respond({request->id, request->op, blkif::ResponseStatus::okay});
      }
    });
    front.device().request_close();
    while (front.device().state() != blkif::XenbusState::closed) front.device().turn();
    backend.join();
    front.reap();
    EXPECT_EQ(front.completed, 16u);
  }
}

}  // namespace
}  // namespace xblk::scenarios
