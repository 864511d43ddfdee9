// What a hostile frontend costs an honest one on the same worker: rounds are shared out by requests, whatever a
// frontend does with its own. Progress is counted, never timed.
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "drivers/blkback/worker.hpp"
#include "drivers/scenarios/hostile/attacked_ring_testing.hpp"

namespace xblk::scenarios {
namespace {

using blkback::StepResult;
using blkif::Op;
using peer::front::Index;
using peer::front::Notify;
using peer::front::Push;
using peer::front::Put;
using peer::front::SetIndex;

// Stands between the worker and a ring: the frontend acts before each round, and the test ends the worker.
class Watched final : public blkback::RingStep {
 public:
  Watched(AttackedRing& rig, std::function<void()> frontend) : rig_(rig), frontend_(std::move(frontend)) {}

  StepResult step(unsigned budget) override {
    ++rounds;
    frontend_();
    const StepResult result = rig_.round(budget);
    most_in_a_round = std::max(most_in_a_round, result.requests);
    return result;
  }
  std::optional<Instant> arm(Instant now) override { return rig_.ring().arm(now); }
  void maintain(Instant now) override { rig_.ring().maintain(now); }
  void defer_events() override { rig_.ring().defer_events(); }
  void take_event() override { rig_.ring().take_event(); }
  [[nodiscard]] bool wants_polling() const override { return rig_.ring().wants_polling(); }
  [[nodiscard]] bool idle() const override { return rig_.ring().idle(); }
  void count_poll() override { rig_.ring().count_poll(); }
  void count_spurious_event() override { rig_.ring().count_spurious_event(); }
  void add_cpu(std::uint64_t ns) override { rig_.ring().add_cpu(ns); }

  std::uint64_t rounds = 0;
  unsigned most_in_a_round = 0;

 private:
  AttackedRing& rig_;
  std::function<void()> frontend_;
};

struct Neighbour {
  const char* name;
  std::uint32_t ring_page_order;
  std::function<void(AttackedRing&)> attack;  // before each of its rounds
};
void PrintTo(const Neighbour& neighbour, std::ostream* out) {
  *out << neighbour.name;
}

// As many requests as the ring takes, all the time.
void refill(AttackedRing& ring, const Put& request) {
  auto& front = ring.front();
  while (front.take_response()) {
  }
  while (front.produced() - front.taken() < front.slots()) ring.play(request);
  ring.play(Push{});
}

const Neighbour kNeighbours[] = {
    {"refills_its_ring", 4, [](AttackedRing& ring) { refill(ring, Put{.op = Op::write, .parts = {{0}}}); }},
    {"refills_its_ring_with_junk", 4, [](AttackedRing& ring) { refill(ring, Put{.op = static_cast<Op>(99)}); }},
    {"asks_for_large_indirect_requests", 4,
     [](AttackedRing& ring) {
       refill(ring, Put{.op = Op::read, .parts = std::vector<peer::Part>(256, {0, 0, 0}), .indirect = true});
     }},
    {"sends_barriers", 0, [](AttackedRing& ring) { refill(ring, Put{.op = Op::write_barrier, .parts = {{0}}}); }},
    {"sends_events_only", 0, [](AttackedRing& ring) { ring.play(Notify{10}); }},
    {"breaks_its_ring", 0,
     [](AttackedRing& ring) {
       ring.play(SetIndex{Index::req_prod, 0x80000000});
     }},
    {"rewrites_its_event_index", 0,
     [](AttackedRing& ring) {
       ring.play({SetIndex{Index::req_event, 0}, SetIndex{Index::rsp_prod, 12345}});
     }},
};

class HostileNeighbour : public AttackedRingTest, public testing::WithParamInterface<Neighbour> {};
INSTANTIATE_TEST_SUITE_P(Attacks, HostileNeighbour, testing::ValuesIn(kNeighbours),
                         [](const auto& test) { return std::string(test.param.name); });

TEST_P(HostileNeighbour, AnHonestRingOfTheSameWorkerIsServedInEachRound) {
  constexpr std::uint64_t kIos = 100;
  // Rigs of their own, as two guests on two vbds; the worker is what they share.
  AttackedRing& hostile = connect({.ring_page_order = GetParam().ring_page_order});
  AttackedRing honest({});
  ASSERT_FALSE(honest.connect());
  env::VirtualEnv env;
  std::atomic<bool> stop{false};
  blkback::Worker<env::VirtualEnv> worker(env);
  Watched attacked(hostile, [&] { GetParam().attack(hostile); });
  std::uint64_t done = 0;
  Watched served(honest, [&] {
    // One request at a time; the next one when its response is there.
    if (honest.front().take_response()) ++done;
    if (done == kIos) stop = true;
    if (honest.front().produced() == done) honest.play({Put{.op = Op::read, .parts = {{0}}}, Push{}});
  });
  worker.attach(attacked, hostile.dom0().waitable(EventPort(1)), nullptr);
  worker.attach(served, honest.dom0().waitable(EventPort(1)), nullptr);
  worker.run(stop);
  EXPECT_EQ(done, kIos);
  EXPECT_EQ(served.rounds, kIos + 1) << "a request a round, whatever the neighbour does";
  EXPECT_LE(attacked.most_in_a_round, 64u);
  EXPECT_LE(attacked.rounds, served.rounds);
  worker.detach(served);
  worker.detach(attacked);
}

}  // namespace
}  // namespace xblk::scenarios
