// The conformance suite of the seam: what CONTRACT.md says, as tests typed over a Rig. A platform instantiates it with
//
//   INSTANTIATE_TYPED_TEST_SUITE_P(Name, Conformance, ::testing::Types<MyRig>);
//
// and a Rig is a pair of connected ends:
//
//   struct MyRig {
//     using Env = ...; using Front = ...; using Back = ...;      // models of the concepts
//     static constexpr bool kScatteredRings = true;              // map_contiguous() takes frames in any order
//     static std::string unavailable();                          // why it cannot run here; empty: it can
//     Env& env(); Front& front(); Back& back();                  // kept until the Rig is destroyed
//     std::string leaks();                                       // what is still held; empty: nothing
//     static constexpr bool kGrantsAtAllocation = true;          // optional: grants end with free_pages() alone
//     (gntalloc)
//   };
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "drivers/base/units.hpp"
#include "drivers/platform/concepts.hpp"
#include "drivers/platform/grants.hpp"

namespace xblk::platform {

template <class Rig>
class Conformance : public ::testing::Test {
 protected:
  static_assert(Env<typename Rig::Env>);
  static_assert(FrontHypervisor<typename Rig::Front>);
  static_assert(BackHypervisor<typename Rig::Back>);

  void SetUp() override {
    const std::string reason = Rig::unavailable();
    if (!reason.empty()) GTEST_SKIP() << reason;
    rig_ = std::make_unique<Rig>();
  }
  void TearDown() override {
    if (rig_ == nullptr) return;  // skipped
    EXPECT_EQ(rig_->leaks(), "");
  }

  [[nodiscard]] typename Rig::Front& front() { return rig_->front(); }
  [[nodiscard]] typename Rig::Back& back() { return rig_->back(); }
  [[nodiscard]] DomId guest() { return front().domain(); }

  [[nodiscard]] PageBlock pages(std::uint32_t count) {
    auto block = front().allocate_pages(kDom0, count);
    EXPECT_TRUE(block) << block.error().message;
    return block.value();
  }
  [[nodiscard]] GrantRef grant(const PageBlock& block, std::uint32_t page, Access access = Access::read_write,
                               DomId peer = kDom0) {
    auto gref = front().grant(peer, FrameNumber(block.first_frame.value() + page), access);
    EXPECT_TRUE(gref) << gref.error().message;
    return gref.value();
  }
  [[nodiscard]] std::vector<GrantRef> grant_all(const PageBlock& block) {
    std::vector<GrantRef> grefs;
    for (std::uint32_t i = 0; i < block.pages; ++i) grefs.push_back(grant(block, i));
    return grefs;
  }

  [[nodiscard]] MapOp map(GrantRef gref, Access access = Access::read_write) {
    MapOp op;
    op.gref = gref;
    op.access = access;
    back().map(guest(), {&op, 1}, wait_);
    return op;
  }
  void map(std::vector<MapOp>& ops) { back().map(guest(), ops, wait_); }
  GrantStatus unmap(const MapOp& mapped) {
    UnmapOp op{mapped.handle, mapped.address};
    back().unmap({&op, 1}, wait_);
    return op.status;
  }
  GrantStatus copy(CopyOp op) {
    back().copy(guest(), {&op, 1}, wait_);
    return op.status;
  }
  // The peer holds the page, as far as the granting side can tell.
  [[nodiscard]] bool held(GrantRef gref) {
    if constexpr (requires { requires Rig::kGrantsAtAllocation; }) return true;
    return !front().end_access(gref);
  }
  // A grant reference that exists in no table: beyond every limit of every platform.
  [[nodiscard]] static GrantRef no_such_grant() { return GrantRef(0x7fffffff); }

  struct Channel {
    EventPort front;
    EventPort back;
  };
  // A connected channel with nothing pending. (Binding itself may leave the new port pending, as on Xen.)
  [[nodiscard]] Channel channel() {
    auto port = front().allocate_port(kDom0);
    EXPECT_TRUE(port) << port.error().message;
    auto bound = back().bind_interdomain(guest(), *port);
    EXPECT_TRUE(bound) << bound.error().message;
    back().consume(*bound);
    front().consume(*port);
    return {*port, *bound};
  }
  void close(const Channel& ports) {
    back().close_port(ports.back);
    front().close_port(ports.front);
  }
  // The ports of `end`, among `ports`, whose waitable is ready now.
  template <class End>
  [[nodiscard]] std::vector<EventPort> ready(End& end, const std::vector<EventPort>& ports) {
    typename Rig::Env::WaitSet set(rig_->env());
    for (EventPort port : ports) EXPECT_TRUE(set.add(end.waitable(port), port.value()));
    std::vector<std::uint64_t> tokens;
    set.wait(rig_->env().now(), tokens);
    for (EventPort port : ports) set.remove(end.waitable(port));
    std::vector<EventPort> result;
    for (std::uint64_t token : tokens) result.emplace_back(static_cast<std::uint32_t>(token));
    std::sort(result.begin(), result.end());
    return result;
  }

  std::unique_ptr<Rig> rig_;
  LockWait wait_;
};

TYPED_TEST_SUITE_P(Conformance);

// ---- Pages and grants -----------------------------------------------------------------------------------------------

TYPED_TEST_P(Conformance, MappedPageIsTheGuestsPage) {
  const PageBlock block = this->pages(2);
  const GrantRef gref = this->grant(block, 1);
  const MapOp mapped = this->map(gref);
  ASSERT_EQ(mapped.status, GrantStatus::okay);
  block.address[kPageSize + 17] = std::byte{1};
  EXPECT_EQ(mapped.address[17], std::byte{1});
  mapped.address[4095] = std::byte{2};
  EXPECT_EQ(block.address[kPageSize + 4095], std::byte{2});
  EXPECT_EQ(this->unmap(mapped), GrantStatus::okay);
  EXPECT_TRUE(this->front().end_access(gref));
  this->front().free_pages(block);
}

TYPED_TEST_P(Conformance, PagesAreZeroedWhenHandedOut) {
  for (int round = 0; round < 2; ++round) {
    const PageBlock block = this->pages(3);
    EXPECT_TRUE(
        std::all_of(block.address, block.address + 3 * kPageSize, [](std::byte b) { return b == std::byte{0}; }));
    std::memset(block.address, 0xa5, 3 * kPageSize);
    this->front().free_pages(block);
  }
}

TYPED_TEST_P(Conformance, OnlyGuestMemoryHasFrames) {
  const PageBlock block = this->pages(2);
  EXPECT_EQ(this->front().frame_of(block.address), block.first_frame);
  EXPECT_EQ(this->front().frame_of(block.address + 2 * kPageSize - 1), FrameNumber(block.first_frame.value() + 1));
  const std::byte elsewhere{};
  EXPECT_EQ(this->front().frame_of(&elsewhere), std::nullopt);
  this->front().free_pages(block);
}

TYPED_TEST_P(Conformance, AccessEndsOnlyWhenNobodyHoldsThePage) {
  const PageBlock block = this->pages(1);
  const GrantRef gref = this->grant(block, 0);
  const MapOp first = this->map(gref);
  const MapOp second = this->map(gref, Access::read_only);
  ASSERT_EQ(first.status, GrantStatus::okay);
  ASSERT_EQ(second.status, GrantStatus::okay);
  EXPECT_FALSE(this->front().end_access(gref));
  EXPECT_EQ(this->unmap(first), GrantStatus::okay);
  EXPECT_FALSE(this->front().end_access(gref)) << "the read-only mapping still holds it";
  EXPECT_EQ(this->unmap(second), GrantStatus::okay);
  EXPECT_TRUE(this->front().end_access(gref));
  EXPECT_NE(this->map(gref).status, GrantStatus::okay) << "an ended grant admits nobody";
  this->front().free_pages(block);
}

TYPED_TEST_P(Conformance, ReadOnlyGrantAdmitsReadersOnly) {
  const PageBlock block = this->pages(1);
  block.address[0] = std::byte{9};
  const GrantRef gref = this->grant(block, 0, Access::read_only);
  const MapOp refused = this->map(gref, Access::read_write);
  EXPECT_NE(refused.status, GrantStatus::okay);
  EXPECT_EQ(refused.address, nullptr);
  const MapOp mapped = this->map(gref, Access::read_only);
  ASSERT_EQ(mapped.status, GrantStatus::okay);
  EXPECT_EQ(mapped.address[0], std::byte{9});
  EXPECT_NE(this->map(gref, Access::read_write).status, GrantStatus::okay) << "also while it is mapped for reading";
  EXPECT_EQ(this->unmap(mapped), GrantStatus::okay);
  EXPECT_TRUE(this->front().end_access(gref));
  this->front().free_pages(block);
}

TYPED_TEST_P(Conformance, GrantForAnotherDomainIsRefused) {
  const PageBlock block = this->pages(1);
  const GrantRef gref = this->grant(block, 0, Access::read_write, DomId(77));
  const MapOp refused = this->map(gref);
  EXPECT_NE(refused.status, GrantStatus::okay);
  EXPECT_EQ(refused.address, nullptr);
  std::byte local{};
  CopyOp op;
  op.gref = gref;
  op.length = 1;
  op.local = &local;
  EXPECT_NE(this->copy(op), GrantStatus::okay);
  EXPECT_TRUE(this->front().end_access(gref)) << "a refused operation holds nothing";
  this->front().free_pages(block);
}

TYPED_TEST_P(Conformance, UnknownDomainIsRefused) {
  MapOp op;
  op.gref = GrantRef(8);
  this->back().map(DomId(0x7fee), {&op, 1}, this->wait_);
  EXPECT_NE(op.status, GrantStatus::okay);
  EXPECT_EQ(op.address, nullptr);
}

// XSA-361, -365: an error in the middle of a batch neither hides nor is hidden, and leaks nothing.
TYPED_TEST_P(Conformance, BadReferenceAtEveryPositionOfABatch) {
  constexpr std::uint32_t kBatch = 5;
  const PageBlock block = this->pages(kBatch);
  const std::vector<GrantRef> grefs = this->grant_all(block);
  for (std::uint32_t bad = 0; bad < kBatch; ++bad) {
    std::vector<MapOp> ops(kBatch);
    for (std::uint32_t i = 0; i < kBatch; ++i) ops[i].gref = i == bad ? this->no_such_grant() : grefs[i];
    this->map(ops);
    for (std::uint32_t i = 0; i < kBatch; ++i) {
      block.address[i * kPageSize] = std::byte{static_cast<unsigned char>(i + 1)};
      if (i == bad) {
        EXPECT_NE(ops[i].status, GrantStatus::okay);
        EXPECT_EQ(ops[i].address, nullptr);
      } else {
        ASSERT_EQ(ops[i].status, GrantStatus::okay);
        EXPECT_EQ(ops[i].address[0], std::byte{static_cast<unsigned char>(i + 1)});
        EXPECT_EQ(this->unmap(ops[i]), GrantStatus::okay);
      }
    }
  }
  for (GrantRef gref : grefs) EXPECT_TRUE(this->front().end_access(gref));
  this->front().free_pages(block);
}

TYPED_TEST_P(Conformance, PartOfABatchCanBeUnmapped) {
  const PageBlock block = this->pages(6);
  const std::vector<GrantRef> grefs = this->grant_all(block);
  std::vector<MapOp> ops(6);
  for (std::size_t i = 0; i < 6; ++i) ops[i].gref = grefs[i];
  this->map(ops);
  for (const MapOp& op : ops) ASSERT_EQ(op.status, GrantStatus::okay);
  std::vector<UnmapOp> middle = {{ops[2].handle, ops[2].address}, {ops[3].handle, ops[3].address}};
  this->back().unmap(middle, this->wait_);
  EXPECT_EQ(middle[0].status, GrantStatus::okay);
  EXPECT_EQ(middle[1].status, GrantStatus::okay);
  EXPECT_TRUE(this->front().end_access(grefs[2]));
  EXPECT_TRUE(this->held(grefs[1]));
  for (const std::size_t i : {0, 1, 4, 5}) {
    block.address[i * kPageSize] = std::byte{0x5a};
    EXPECT_EQ(ops[i].address[0], std::byte{0x5a}) << "page " << i << " is still mapped";
    EXPECT_EQ(this->unmap(ops[i]), GrantStatus::okay);
  }
  for (const std::size_t i : {0, 1, 3, 4, 5}) EXPECT_TRUE(this->front().end_access(grefs[i]));
  this->front().free_pages(block);
}

TYPED_TEST_P(Conformance, SecondUnmapIsRefusedAndHitsNobodyElse) {
  const PageBlock block = this->pages(2);
  const std::vector<GrantRef> grefs = this->grant_all(block);
  const MapOp gone = this->map(grefs[0]);
  ASSERT_EQ(gone.status, GrantStatus::okay);
  EXPECT_EQ(this->unmap(gone), GrantStatus::okay);
  const MapOp live = this->map(grefs[1]);  // likely reuses the handle and the address
  ASSERT_EQ(live.status, GrantStatus::okay);
  EXPECT_NE(this->unmap(gone), GrantStatus::okay);
  EXPECT_TRUE(this->held(grefs[1])) << "the live mapping survived the stale unmap";
  EXPECT_EQ(this->unmap(live), GrantStatus::okay);
  UnmapOp nonsense{MapHandle(0xffffffff), block.address};
  this->back().unmap({&nonsense, 1}, this->wait_);
  EXPECT_NE(nonsense.status, GrantStatus::okay);
  for (GrantRef gref : grefs) EXPECT_TRUE(this->front().end_access(gref));
  this->front().free_pages(block);
}

TYPED_TEST_P(Conformance, CopyMovesExactlyTheNamedBytes) {
  const PageBlock block = this->pages(1);
  const GrantRef gref = this->grant(block, 0);
  std::memset(block.address, 0x11, kPageSize);
  std::vector<std::byte> local(kPageSize, std::byte{0x22});
  CopyOp op;
  op.gref = gref;
  op.offset = 512;
  op.length = 1024;
  op.local = local.data() + 100;
  op.direction = CopyOp::Direction::to_grant;
  EXPECT_EQ(this->copy(op), GrantStatus::okay);
  EXPECT_EQ(block.address[511], std::byte{0x11});
  EXPECT_EQ(block.address[512], std::byte{0x22});
  EXPECT_EQ(block.address[1535], std::byte{0x22});
  EXPECT_EQ(block.address[1536], std::byte{0x11});
  op.direction = CopyOp::Direction::from_grant;
  op.offset = 0;
  op.length = 4;
  EXPECT_EQ(this->copy(op), GrantStatus::okay);
  EXPECT_EQ(local[99], std::byte{0x22});
  EXPECT_EQ(local[100], std::byte{0x11});
  EXPECT_EQ(local[103], std::byte{0x11});
  EXPECT_EQ(local[104], std::byte{0x22});
  op.offset = 4000;
  op.length = 97;
  EXPECT_NE(this->copy(op), GrantStatus::okay) << "a copy ends with the page";
  EXPECT_TRUE(this->front().end_access(gref)) << "a copy holds nothing afterwards";
  this->front().free_pages(block);
}

TYPED_TEST_P(Conformance, CopyObeysPermissions) {
  const PageBlock block = this->pages(1);
  const GrantRef gref = this->grant(block, 0, Access::read_only);
  std::byte local{0x33};
  CopyOp op;
  op.gref = gref;
  op.length = 1;
  op.local = &local;
  op.direction = CopyOp::Direction::to_grant;
  EXPECT_NE(this->copy(op), GrantStatus::okay);
  EXPECT_EQ(block.address[0], std::byte{0});
  op.direction = CopyOp::Direction::from_grant;
  EXPECT_EQ(this->copy(op), GrantStatus::okay);
  EXPECT_TRUE(this->front().end_access(gref));
  EXPECT_NE(this->copy(op), GrantStatus::okay);
  op.gref = this->no_such_grant();
  EXPECT_NE(this->copy(op), GrantStatus::okay);
  this->front().free_pages(block);
}

TYPED_TEST_P(Conformance, RingPagesLieSideBySide) {
  constexpr std::uint32_t kPages = 4;
  const PageBlock block = this->pages(kPages);
  std::vector<GrantRef> grefs = this->grant_all(block);
  if (TypeParam::kScatteredRings) std::reverse(grefs.begin(), grefs.end());
  auto window = this->back().map_contiguous(this->guest(), grefs);
  ASSERT_TRUE(window) << window.error().message;
  for (std::uint32_t i = 0; i < kPages; ++i) {
    const std::uint32_t page = TypeParam::kScatteredRings ? kPages - 1 - i : i;
    block.address[page * kPageSize + 3] = std::byte{static_cast<unsigned char>(page + 1)};
    EXPECT_EQ((*window)[i * kPageSize + 3], std::byte{static_cast<unsigned char>(page + 1)});
  }
  EXPECT_TRUE(this->held(grefs[1]));
  this->back().unmap_contiguous(*window, kPages);
  for (GrantRef gref : grefs) EXPECT_TRUE(this->front().end_access(gref));
  this->front().free_pages(block);
}

TYPED_TEST_P(Conformance, RingWithOneBadPageIsNotMappedAtAll) {
  const PageBlock block = this->pages(3);
  const std::vector<GrantRef> grefs = this->grant_all(block);
  for (std::size_t bad = 0; bad < grefs.size(); ++bad) {
    std::vector<GrantRef> broken = grefs;
    broken[bad] = this->no_such_grant();
    auto window = this->back().map_contiguous(this->guest(), broken);
    ASSERT_FALSE(window);
    EXPECT_FALSE(window.error().message.empty());
  }
  EXPECT_FALSE(this->back().map_contiguous(this->guest(), {}));
  for (GrantRef gref : grefs) EXPECT_TRUE(this->front().end_access(gref));
  this->front().free_pages(block);
}

TYPED_TEST_P(Conformance, FullGrantTableAndMemoryAreErrorsThatPass) {
  const PageBlock block = this->pages(1);
  std::vector<GrantRef> grefs;
  for (;;) {
    auto gref = this->front().grant(kDom0, block.first_frame, Access::read_write);
    if (!gref) {
      EXPECT_EQ(gref.error().code, ENOSPC);
      break;
    }
    grefs.push_back(*gref);
  }
  ASSERT_FALSE(grefs.empty());
  for (GrantRef gref : grefs) EXPECT_TRUE(this->front().end_access(gref));
  EXPECT_TRUE(this->front().end_access(this->grant(block, 0)));
  this->front().free_pages(block);
  auto huge = this->front().allocate_pages(kDom0, 1u << 31);
  ASSERT_FALSE(huge);
  EXPECT_EQ(huge.error().code, ENOMEM);
  this->front().free_pages(this->pages(1));
}

// ---- Event channels -------------------------------------------------------------------------------------------------

TYPED_TEST_P(Conformance, EventsArriveOnceAtTheOtherEnd) {
  const auto ports = this->channel();
  EXPECT_FALSE(this->back().consume(ports.back));
  this->front().notify(ports.front);
  this->front().notify(ports.front);
  EXPECT_FALSE(this->front().consume(ports.front)) << "not at the sender";
  EXPECT_TRUE(this->back().consume(ports.back));
  EXPECT_FALSE(this->back().consume(ports.back)) << "events are not counted";
  this->back().notify(ports.back);
  EXPECT_TRUE(this->front().consume(ports.front));
  EXPECT_FALSE(this->front().consume(ports.front));
  this->close(ports);
}

TYPED_TEST_P(Conformance, WaitablesAreReadyWhilePending) {
  const auto a = this->channel();
  const auto b = this->channel();
  EXPECT_TRUE(this->ready(this->back(), {a.back, b.back}).empty());
  this->front().notify(b.front);
  EXPECT_EQ(this->ready(this->back(), {a.back, b.back}), std::vector<EventPort>{b.back});
  EXPECT_EQ(this->ready(this->back(), {a.back, b.back}), std::vector<EventPort>{b.back}) << "level-triggered";
  EXPECT_TRUE(this->back().consume(b.back));
  EXPECT_TRUE(this->ready(this->back(), {a.back, b.back}).empty());
  this->back().notify(a.back);
  EXPECT_EQ(this->ready(this->front(), {a.front, b.front}), std::vector<EventPort>{a.front});
  EXPECT_TRUE(this->front().consume(a.front));
  EXPECT_TRUE(this->ready(this->front(), {a.front, b.front}).empty());
  this->close(a);
  this->close(b);
}

// Both ends mask in the same way; a storm while masked (XSA-331, -391) wakes nobody and is one event afterwards.
template <class Sender, class Receiver, class Ready>
void expect_masking(Sender& sender, EventPort out, Receiver& receiver, EventPort in, Ready ready) {
  receiver.mask(in);
  for (int i = 0; i < 1000; ++i) sender.notify(out);
  EXPECT_FALSE(ready());
  receiver.unmask(in);
  EXPECT_TRUE(ready()) << "pending events are delivered at the unmask";
  receiver.mask(in);
  EXPECT_FALSE(ready());
  EXPECT_TRUE(receiver.consume(in)) << "a masked port can be consumed";
  receiver.unmask(in);
  EXPECT_FALSE(ready());
  EXPECT_FALSE(receiver.consume(in));
}

TYPED_TEST_P(Conformance, MaskedPortsStayPendingAndWakeNobody) {
  const auto ports = this->channel();
  expect_masking(this->front(), ports.front, this->back(), ports.back,
                 [&] { return !this->ready(this->back(), {ports.back}).empty(); });
  expect_masking(this->back(), ports.back, this->front(), ports.front,
                 [&] { return !this->ready(this->front(), {ports.front}).empty(); });
  this->close(ports);
}

TYPED_TEST_P(Conformance, OnlyAnUnboundPortMeantForUsCanBeBound) {
  const auto ports = this->channel();
  EXPECT_FALSE(this->back().bind_interdomain(this->guest(), ports.front)) << "bound already";
  EXPECT_FALSE(this->back().bind_interdomain(this->guest(), EventPort(0)));
  EXPECT_FALSE(this->back().bind_interdomain(this->guest(), EventPort(0xffffffff)));
  EXPECT_FALSE(this->back().bind_interdomain(DomId(0x7fee), ports.front)) << "no such domain";
  auto other = this->front().allocate_port(DomId(77));
  if (other) {
    EXPECT_FALSE(this->back().bind_interdomain(this->guest(), *other)) << "meant for domain 77";
    this->front().close_port(*other);
  }
  this->close(ports);
}

TYPED_TEST_P(Conformance, NotifyWithoutAPeerIsHarmless) {
  auto port = this->front().allocate_port(kDom0);
  ASSERT_TRUE(port);
  this->front().notify(*port);  // unbound
  auto bound = this->back().bind_interdomain(this->guest(), *port);
  ASSERT_TRUE(bound) << bound.error().message;
  EXPECT_TRUE(this->back().consume(*bound)) << "an event from before the bind may not be lost";
  this->front().close_port(*port);
  this->back().notify(*bound);  // the peer closed
  EXPECT_FALSE(this->back().consume(*bound));
  this->back().close_port(*bound);
}

TYPED_TEST_P(Conformance, PortCanBeBoundAgainAfterTheBackendClosedIt) {
  auto ports = this->channel();
  this->back().mask(ports.back);
  this->back().close_port(ports.back);
  this->front().notify(ports.front);
  auto again = this->back().bind_interdomain(this->guest(), ports.front);
  ASSERT_TRUE(again) << again.error().message;
  EXPECT_EQ(this->ready(this->back(), {*again}), std::vector<EventPort>{*again}) << "a fresh port is not masked";
  EXPECT_TRUE(this->back().consume(*again));
  this->back().notify(*again);
  EXPECT_TRUE(this->front().consume(ports.front));
  this->close({ports.front, *again});
}

REGISTER_TYPED_TEST_SUITE_P(Conformance, MappedPageIsTheGuestsPage, PagesAreZeroedWhenHandedOut,
                            OnlyGuestMemoryHasFrames, AccessEndsOnlyWhenNobodyHoldsThePage,
                            ReadOnlyGrantAdmitsReadersOnly, GrantForAnotherDomainIsRefused, UnknownDomainIsRefused,
                            BadReferenceAtEveryPositionOfABatch, PartOfABatchCanBeUnmapped,
                            SecondUnmapIsRefusedAndHitsNobodyElse, CopyMovesExactlyTheNamedBytes, CopyObeysPermissions,
                            RingPagesLieSideBySide, RingWithOneBadPageIsNotMappedAtAll,
                            FullGrantTableAndMemoryAreErrorsThatPass, EventsArriveOnceAtTheOtherEnd,
                            WaitablesAreReadyWhilePending, MaskedPortsStayPendingAndWakeNobody,
                            OnlyAnUnboundPortMeantForUsCanBeBound, NotifyWithoutAPeerIsHarmless,
                            PortCanBeBoundAgainAfterTheBackendClosedIt);

}  // namespace xblk::platform
