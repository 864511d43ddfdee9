// Two threads, each with a ring of its own, on a grant table that is too small for both: each gets its I/Os done, and
// neither is ever told that it will not work, since the other always gives back what it holds.
#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <memory>
#include <thread>
#include <vector>

#include "drivers/base/prng.hpp"
#include "drivers/blkfront/ring.hpp"
#include "drivers/env/real/real_env.hpp"
#include "drivers/hypervisor/hypervisor.hpp"
#include "drivers/hypervisor/in_process_guest.hpp"

namespace xblk::blkfront {
namespace {

using env::RealEnv;

struct ThreadedPlatform {
  using Env = RealEnv;
  using Front = hypervisor::InProcessGuest<RealEnv>;
};

constexpr std::uint32_t kPagesMax = 8;
constexpr int kIos = 5000;

// A ring whose one thread is its caller and its backend.
class Loop {
 public:
  Loop(RealEnv& env, ThreadedPlatform::Front& guest, Features& features, HoldMarks& marks, std::uint32_t number)
      : ring_(env, guest, counters_), mailbox_(env), random_(number + 1), env_(env) {
    const auto page = guest.allocate_pages(kDom0, 1).value();
    platform::initialise_ring(page.address, kPageSize);
    RingSetup setup;
    setup.number = number;
    setup.shared = page.address;
    setup.slots = blkif::ring_slots(1, blkif::kNativeAbi);
    setup.port = guest.allocate_port(kDom0).value();
    setup.device.capacity = Sectors(1 << 20);
    setup.features = &features;
    setup.marks = &marks;
    const PoolSetup indirect{kDom0, 0, false, Keep::granted, false};
    ring_.attach(setup, nullptr, std::make_shared<GrantPool<ThreadedPlatform>>(env, guest, indirect));
    back_ = platform::BackView(page.address, blkif::kNativeAbi, setup.slots);
    XBLK_CHECK(back_.attach(), "a fresh ring");
    buffer_ = guest.allocate_pages(kDom0, kPagesMax).value().address;
  }

  void run() {
    for (int done = 0; done < kIos;) {
      const Io io{IoOp::write, Sectors(0), Sectors((1 + random_.below(kPagesMax)) * kSectorsPerPage), buffer_};
      const auto status = ring_.submit(io, mailbox_);
      ring_.commit();
      if (!status) refused_for_good += status.error().code != EAGAIN;
      if (!status || random_.below(3) == 0) answer();
      if (!status) env_.yield();
      for (; !mailbox_.ready.empty(); mailbox_.ready.pop()) {
        failed += mailbox_.ready.front().error != 0;
        ++done;
      }
    }
    while (mailbox_.in_flight > 0) answer();
  }

  int refused_for_good = 0;
  int failed = 0;

 private:
  void answer() {
    bool overflow = false;
    for (std::uint32_t n = back_.unconsumed(overflow); n > 0; --n) {
      const auto raw = platform::Untrusted<blkif::RawRequest>(back_.next_request()).fetch();
      const auto response = blkif::encode_response(
          {blkif::request_id(blkif::kNativeAbi, raw), blkif::request_response_op(raw), blkif::ResponseStatus::okay});
      platform::copy_to_shared(back_.next_response(), response.bytes.data(), response.bytes.size());
    }
    static_cast<void>(back_.push());
    ring_.process_responses();
  }

  QueueCounters counters_;
  Ring<ThreadedPlatform> ring_;
  Mailbox<ThreadedPlatform> mailbox_;
  platform::BackView back_;
  Prng random_;
  RealEnv& env_;
  std::byte* buffer_ = nullptr;
};

TEST(ShortageStress, TwoQueuesShareTooFewGrantsAndBothGetThrough) {
  RealEnv env;
  hypervisor::Hypervisor<RealEnv> hypervisor(env);
  auto guest = std::move(*ThreadedPlatform::Front::create(hypervisor, DomId(1), 256, {.grant_frames = 1}));
  Features features;
  HoldMarks marks;
  Loop first(env, *guest, features, marks, 0);
  Loop second(env, *guest, features, marks, 1);
  // Six entries are left: less than the longest I/O of either needs.
  std::vector<GrantRef> taken;
  while (auto gref = guest->grant(kDom0, FrameNumber(0), platform::Access::read_write)) taken.push_back(*gref);
  for (int i = 0; i < 6; ++i) {
    ASSERT_TRUE(guest->end_access(taken.back()));
    taken.pop_back();
  }
  std::thread other([&] { second.run(); });
  first.run();
  other.join();
  for (const Loop* loop : {&first, &second}) {
    EXPECT_EQ(loop->refused_for_good, 0);
    EXPECT_EQ(loop->failed, 0);
  }
}

}  // namespace
}  // namespace xblk::blkfront
