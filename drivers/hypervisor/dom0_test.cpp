// Dom0 at the limits: handles run out, mappings fail. Nothing may leak and every operation says what became of it.
#include "drivers/hypervisor/dom0.hpp"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "drivers/env/virtual/virtual_env.hpp"
#include "drivers/hypervisor/in_process_guest.hpp"

namespace xblk::hypervisor {
namespace {

using platform::Access;
using platform::GrantStatus;
using platform::MapOp;

// An Env whose address space is full on demand, as at vm.max_map_count.
struct FullEnv : env::VirtualEnv {
  struct Memory : env::VirtualMemory {
    static inline bool full = false;
    static inline std::uint32_t pages_mapped = 0;
    static inline std::uint32_t unmap_calls = 0;

    static Result<Memory> create(const std::string& name, std::uint32_t pages) {
      auto memory = env::VirtualMemory::create(name, pages);
      if (!memory) return tl::unexpected(memory.error());
      Memory result;
      static_cast<env::VirtualMemory&>(result) = std::move(*memory);
      return result;
    }
    [[nodiscard]] Result<std::byte*> map(FrameNumber first, std::uint32_t count, Access access) const {
      if (full) return fail(ENOMEM, "address space is full");
      pages_mapped += count;
      return env::VirtualMemory::map(first, count, access);
    }
    [[nodiscard]] Result<std::byte*> map_scattered(std::span<const FrameNumber> frames, Access access) const {
      if (full) return fail(ENOMEM, "address space is full");
      pages_mapped += static_cast<std::uint32_t>(frames.size());
      return env::VirtualMemory::map_scattered(frames, access);
    }
    static void unmap(std::byte*, std::uint32_t count) {
      pages_mapped -= count;
      ++unmap_calls;
    }
  };
};

class Dom0Test : public ::testing::TestWithParam<GrantLocks> {
 protected:
  static constexpr std::uint32_t kHandles = 3;
  static constexpr std::uint32_t kPages = 5;

  void SetUp() override {
    FullEnv::Memory::full = false;
    FullEnv::Memory::pages_mapped = 0;
    FullEnv::Memory::unmap_calls = 0;
    for (std::uint32_t i = 0; i < kPages; ++i) {
      grefs_.push_back(*guest_->grant(kDom0, FrameNumber(block_.first_frame.value() + i), Access::read_write));
    }
  }
  void TearDown() override {
    for (GrantRef gref : grefs_) EXPECT_TRUE(guest_->end_access(gref));
    EXPECT_EQ(hypervisor_.usage(), HypervisorUsage{.domains = 1});
    EXPECT_EQ(FullEnv::Memory::pages_mapped, 0u);
  }
  std::vector<MapOp> map(std::size_t first, std::size_t count) {
    std::vector<MapOp> ops(count);
    for (std::size_t i = 0; i < count; ++i) ops[i].gref = grefs_[first + i];
    dom0_.map(DomId(1), ops, wait_);
    return ops;
  }
  GrantStatus unmap(const MapOp& op) {
    platform::UnmapOp unmap{op.handle, op.address};
    dom0_.unmap({&unmap, 1}, wait_);
    return unmap.status;
  }

  FullEnv env_;
  Hypervisor<FullEnv> hypervisor_{env_, {.grant_locks = GetParam(), .maptrack_limit = kHandles, .maptrack_lists = 2}};
  Dom0<FullEnv> dom0_{hypervisor_};
  std::unique_ptr<InProcessGuest<FullEnv>> guest_ =
      std::move(*InProcessGuest<FullEnv>::create(hypervisor_, DomId(1), 16));
  platform::PageBlock block_ = *guest_->allocate_pages(kDom0, kPages);
  std::vector<GrantRef> grefs_;
  platform::LockWait wait_;
};

TEST_P(Dom0Test, OperationsBeyondTheHandlesAreToldSo) {
  const auto ops = map(0, kPages);
  for (std::size_t i = 0; i < kPages; ++i) {
    EXPECT_EQ(ops[i].status, i < kHandles ? GrantStatus::okay : GrantStatus::no_device_space) << i;
    EXPECT_EQ(ops[i].address == nullptr, i >= kHandles) << i;
  }
  EXPECT_EQ(map(4, 1)[0].status, GrantStatus::no_device_space);
  EXPECT_EQ(unmap(ops[1]), GrantStatus::okay);
  const auto again = map(4, 1);
  EXPECT_EQ(again[0].status, GrantStatus::okay) << "a returned handle is usable at once";
  for (const MapOp* op : {&ops[0], &ops[2], &again[0]}) EXPECT_EQ(unmap(*op), GrantStatus::okay);
}

TEST_P(Dom0Test, FullAddressSpaceLosesNothing) {
  FullEnv::Memory::full = true;
  for (const MapOp& op : map(0, kHandles)) {
    EXPECT_EQ(op.status, GrantStatus::no_device_space);
    EXPECT_EQ(op.address, nullptr);
  }
  auto ring = dom0_.map_contiguous(DomId(1), std::span(grefs_).first(2));
  ASSERT_FALSE(ring);
  EXPECT_EQ(ring.error().code, ENOMEM);
  EXPECT_EQ(hypervisor_.usage().mappings, 0u);
  FullEnv::Memory::full = false;
  for (const MapOp& op : map(0, kHandles)) EXPECT_EQ(unmap(op), GrantStatus::okay);
}

TEST_P(Dom0Test, RingLargerThanTheHandlesIsNotMappedAtAll) {
  EXPECT_FALSE(dom0_.map_contiguous(DomId(1), grefs_));
  EXPECT_EQ(hypervisor_.usage().mappings, 0u);
  auto ring = dom0_.map_contiguous(DomId(1), std::span(grefs_).first(kHandles));
  ASSERT_TRUE(ring) << ring.error().message;
  EXPECT_EQ(map(4, 1)[0].status, GrantStatus::no_device_space) << "ring pages are mappings like others";
  dom0_.unmap_contiguous(*ring, kHandles);
}

TEST_P(Dom0Test, UnmapWithAnotherAddressIsRefused) {
  const auto ops = map(0, 2);
  platform::UnmapOp crossed{ops[0].handle, ops[1].address};
  dom0_.unmap({&crossed, 1}, wait_);
  EXPECT_EQ(crossed.status, GrantStatus::bad_handle);
  for (const MapOp& op : ops) EXPECT_EQ(unmap(op), GrantStatus::okay);
}

TEST_P(Dom0Test, LargeUnmapWithDuplicatesCountsEachPageOnce) {
  const auto ops = map(0, kHandles);
  std::vector<platform::UnmapOp> unmaps;
  for (int round = 0; round < 30; ++round) {
    for (const MapOp& op : ops) unmaps.push_back({op.handle, op.address});
  }
  dom0_.unmap(unmaps, wait_);
  for (std::size_t i = 0; i < unmaps.size(); ++i) {
    EXPECT_EQ(unmaps[i].status, i < kHandles ? GrantStatus::okay : GrantStatus::bad_handle) << i;
  }
}

// Each call may be a TLB shootdown.
TEST_P(Dom0Test, NeighboursLeaveInOneCallWhateverTheirOrderInTheBatch) {
  const auto first = map(0, 1);
  const auto third = map(2, 1);
  const auto second = map(1, 1);
  std::vector<platform::UnmapOp> unmaps;
  for (const auto* ops : {&third, &first, &second}) unmaps.push_back({ops->front().handle, ops->front().address});
  unmaps.push_back(unmaps.front());  // of no handle any more: must not break the run
  dom0_.unmap(unmaps, wait_);
  EXPECT_EQ(FullEnv::Memory::unmap_calls, 1u);
  EXPECT_EQ(FullEnv::Memory::pages_mapped, 0u);
}

TEST_P(Dom0Test, AGapIsNeverUnmappedWithItsNeighbours) {
  const auto ops = map(0, kHandles);
  std::vector<platform::UnmapOp> ends;
  for (const MapOp* op : {&ops[2], &ops[0]}) ends.push_back({op->handle, op->address});
  dom0_.unmap(ends, wait_);
  EXPECT_EQ(FullEnv::Memory::unmap_calls, 2u);
  EXPECT_EQ(FullEnv::Memory::pages_mapped, 1u);
  EXPECT_EQ(unmap(ops[1]), GrantStatus::okay);
}

INSTANTIATE_TEST_SUITE_P(Locks, Dom0Test, ::testing::Values(GrantLocks::coarse, GrantLocks::split),
                         [](const auto& locks) { return locks.param == GrantLocks::coarse ? "coarse" : "split"; });

}  // namespace
}  // namespace xblk::hypervisor
