// Many threads on one hypervisor with random operations, for both lockings; meant to be run under TSan as well. At the
// end nothing may be held.
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "drivers/base/prng.hpp"
#include "drivers/env/real/real_env.hpp"
#include "drivers/hypervisor/dom0.hpp"
#include "drivers/hypervisor/hypervisor.hpp"
#include "drivers/hypervisor/in_process_guest.hpp"

namespace xblk::hypervisor {
namespace {

using env::RealEnv;
using platform::Access;
using platform::GrantStatus;
using platform::LockWait;
using platform::MapOp;
using platform::UnmapOp;
using Guest = InProcessGuest<RealEnv>;

constexpr std::uint32_t kSharedPages = 64;
constexpr std::size_t kHeldMax = 24;

// A guest whose first pages are granted for good; each begins with its own frame number.
struct Offer {
  std::unique_ptr<Guest> guest;
  platform::PageBlock block;
  std::vector<GrantRef> grefs;

  Offer(Hypervisor<RealEnv>& hypervisor, DomId id) : guest(std::move(*Guest::create(hypervisor, id, 1024))) {
    block = *guest->allocate_pages(kDom0, kSharedPages);
    for (std::uint32_t i = 0; i < kSharedPages; ++i) {
      const std::uint32_t frame = block.first_frame.value() + i;
      std::memcpy(block.address + i * kPageSize, &frame, sizeof frame);
      grefs.push_back(*guest->grant(kDom0, FrameNumber(frame), i % 4 == 0 ? Access::read_only : Access::read_write));
    }
  }
  [[nodiscard]] std::uint32_t frame(std::size_t page) const {
    return block.first_frame.value() + static_cast<std::uint32_t>(page);
  }
};

std::uint32_t first_word(const std::byte* page) {
  std::uint32_t word = 0;
  std::memcpy(&word, page, sizeof word);
  return word;
}

// One worker of dom0 and its share of guest activity.
class Worker {
 public:
  Worker(Dom0<RealEnv>& dom0, Hypervisor<RealEnv>& hypervisor, std::vector<Offer>& offers, std::uint64_t seed,
         std::uint16_t own_domain)
      : dom0_(dom0), hypervisor_(hypervisor), offers_(offers), random_(seed), own_domain_(own_domain) {}

  void run(int steps) {
    for (int i = 0; i < steps; ++i) {
      switch (random_.below(8)) {
        case 0:
        case 1:
          map_batch();
          break;
        case 2:
        case 3:
          unmap_some();
          break;
        case 4:
          copy_one();
          break;
        case 5:
          grant_own_page();
          break;
        case 6:
          use_channel();
          break;
        default:
          if (random_.one_in(20)) live_and_die();
      }
    }
    while (!held_.empty()) unmap_some();
  }

 private:
  struct Held {
    UnmapOp unmap;
    std::uint32_t frame;
  };

  Offer& any_offer() { return offers_[random_.below(offers_.size())]; }

  void map_batch() {
    Offer& offer = any_offer();
    const std::size_t first = random_.below(kSharedPages);
    std::vector<MapOp> ops(1 + random_.below(6));
    for (std::size_t i = 0; i < ops.size(); ++i) {
      const std::size_t page = (first + i) % kSharedPages;
      ops[i].gref = random_.one_in(10) ? GrantRef(0x7fffffff) : offer.grefs[page];
      ops[i].access = random_.one_in(2) ? Access::read_only : Access::read_write;
    }
    dom0_.map(offer.guest->domain(), ops, wait_);
    for (std::size_t i = 0; i < ops.size(); ++i) {
      const std::size_t page = (first + i) % kSharedPages;
      const bool bad = ops[i].gref == GrantRef(0x7fffffff) || (ops[i].access == Access::read_write && page % 4 == 0);
      ASSERT_EQ(ops[i].status != GrantStatus::okay, bad);
      if (bad) continue;
      ASSERT_EQ(first_word(ops[i].address), offer.frame(page));
      held_.push_back({{ops[i].handle, ops[i].address}, offer.frame(page)});
    }
    while (held_.size() > kHeldMax) unmap_some();
  }

  void unmap_some() {
    std::vector<UnmapOp> ops;
    for (std::size_t n = 1 + random_.below(40); n > 0 && !held_.empty(); --n) {
      std::swap(held_[random_.below(held_.size())], held_.back());
      ASSERT_EQ(first_word(held_.back().unmap.address), held_.back().frame) << "still mapped, still the same page";
      ops.push_back(held_.back().unmap);
      held_.pop_back();
    }
    const std::vector<UnmapOp> stale = ops;
    dom0_.unmap(ops, wait_);
    for (const UnmapOp& op : ops) ASSERT_EQ(op.status, GrantStatus::okay);
    if (!stale.empty()) {
      UnmapOp again = stale.front();
      dom0_.unmap({&again, 1}, wait_);
      ASSERT_EQ(again.status, GrantStatus::bad_handle);
    }
  }

  void copy_one() {
    Offer& offer = any_offer();
    const std::size_t page = random_.below(kSharedPages);
    std::uint32_t word = 0;
    platform::CopyOp op;
    op.gref = offer.grefs[page];
    op.length = sizeof word;
    op.local = reinterpret_cast<std::byte*>(&word);
    dom0_.copy(offer.guest->domain(), {&op, 1}, wait_);
    ASSERT_EQ(op.status, GrantStatus::okay);
    ASSERT_EQ(word, offer.frame(page));
  }

  void grant_own_page() {
    Guest& guest = *any_offer().guest;
    const auto block = guest.allocate_pages(kDom0, 1);
    ASSERT_TRUE(block);
    MapOp op;
    op.gref = *guest.grant(kDom0, block->first_frame, Access::read_write);
    dom0_.map(guest.domain(), {&op, 1}, wait_);
    ASSERT_EQ(op.status, GrantStatus::okay);
    op.address[8] = std::byte{1};
    ASSERT_EQ(block->address[8], std::byte{1});
    ASSERT_FALSE(guest.end_access(op.gref));
    UnmapOp unmap{op.handle, op.address};
    dom0_.unmap({&unmap, 1}, wait_);
    ASSERT_TRUE(guest.end_access(op.gref));
    guest.free_pages(*block);
  }

  void use_channel() {
    Guest& guest = *any_offer().guest;
    const auto port = guest.allocate_port(kDom0);
    ASSERT_TRUE(port);
    const auto bound = dom0_.bind_interdomain(guest.domain(), *port);
    ASSERT_TRUE(bound);
    dom0_.consume(*bound);
    guest.notify(*port);
    ASSERT_TRUE(dom0_.consume(*bound));
    dom0_.notify(*bound);
    ASSERT_TRUE(guest.consume(*port));
    if (random_.one_in(2)) {
      guest.close_port(*port);
      dom0_.close_port(*bound);
    } else {
      dom0_.close_port(*bound);
      guest.close_port(*port);
    }
  }

  // A guest that is gone while its page is mapped and its port is bound.
  void live_and_die() {
    auto guest = std::move(*Guest::create(hypervisor_, DomId(own_domain_), 4, {.grant_frames = 1}));
    const auto block = *guest->allocate_pages(kDom0, 1);
    MapOp op;
    op.gref = *guest->grant(kDom0, block.first_frame, Access::read_write);
    dom0_.map(guest->domain(), {&op, 1}, wait_);
    ASSERT_EQ(op.status, GrantStatus::okay);
    const auto bound = dom0_.bind_interdomain(guest->domain(), *guest->allocate_port(kDom0));
    ASSERT_TRUE(bound);
    guest.reset();
    op.address[0] = std::byte{1};
    dom0_.notify(*bound);
    dom0_.close_port(*bound);
    UnmapOp unmap{op.handle, op.address};
    dom0_.unmap({&unmap, 1}, wait_);
    ASSERT_EQ(unmap.status, GrantStatus::okay);
  }

  Dom0<RealEnv>& dom0_;
  Hypervisor<RealEnv>& hypervisor_;
  std::vector<Offer>& offers_;
  Prng random_;
  const std::uint16_t own_domain_;
  std::vector<Held> held_;
  LockWait wait_;
};

class Stress : public ::testing::TestWithParam<GrantLocks> {};

TEST_P(Stress, RandomOperationsLeaveNothingBehind) {
  const std::uint64_t seed = std::random_device{}();
  SCOPED_TRACE(::testing::Message() << "seed " << seed);
  constexpr int kThreads = 6;
  constexpr int kSteps = 1'500;
  RealEnv env;
  // Few handles, so that reuse and stealing happen all the time.
  Hypervisor<RealEnv> hypervisor(env, {.grant_locks = GetParam(), .maptrack_limit = 400, .maptrack_lists = 4});
  Dom0<RealEnv> dom0(hypervisor);
  {
    std::vector<Offer> offers;
    for (std::uint16_t id = 1; id <= 2; ++id) offers.emplace_back(hypervisor, DomId(id));
    std::vector<std::thread> threads;
    for (int t = 0; t < kThreads; ++t) {
      threads.emplace_back([&, t] {
        const auto number = static_cast<std::uint16_t>(t);
        Worker(dom0, hypervisor, offers, seed + number, static_cast<std::uint16_t>(100 + number)).run(kSteps);
      });
    }
    for (auto& thread : threads) thread.join();
    EXPECT_EQ(hypervisor.usage(), HypervisorUsage{.domains = 2});
    for (Offer& offer : offers) {
      for (GrantRef gref : offer.grefs) EXPECT_TRUE(offer.guest->end_access(gref));
    }
  }
  EXPECT_EQ(hypervisor.usage(), HypervisorUsage{});
}

INSTANTIATE_TEST_SUITE_P(Locks, Stress, ::testing::Values(GrantLocks::coarse, GrantLocks::split),
                         [](const auto& locks) { return locks.param == GrantLocks::coarse ? "coarse" : "split"; });

}  // namespace
}  // namespace xblk::hypervisor
