// trusted=0: a backend that dumps every page that is granted to it finds the data of requests in flight, and zeros
// (XSA-403: CVE-2022-26365, CVE-2022-33740, CVE-2022-33741, CVE-2022-33742).
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <set>
#include <tuple>
#include <vector>

#include "drivers/blkfront/frontend_testing.hpp"
#include "drivers/hypervisor/grant_entry.hpp"

namespace xblk::blkfront {
namespace {

using Page = std::vector<std::byte>;
using Dump = std::map<GrantRef, Page>;

constexpr std::byte kSecret{0xee};  // all that a caller has in its buffers besides its data
constexpr std::byte kData{0x5a};
constexpr std::uint32_t kGrefs = 4096;

// Persistent or not; the pools of the device or of its queues.
class Untrusted : public FrontendTest, public testing::WithParamInterface<std::tuple<bool, const char*>> {
 protected:
  void connect_untrusted() {
    back_->offer().persistent = persistent();
    ASSERT_NO_FATAL_FAILURE(connect({{"trusted", "0"}, {"pools", std::get<1>(GetParam())}}));
    std::fill(buffer_.begin(), buffer_.end(), kSecret);
    EXPECT_EQ(front_key("xblk-negotiated/trusted"), "0");
    const Dump fresh = dump();
    ASSERT_EQ(fresh.size(), 1u) << "the ring";
    ring_ = fresh.begin()->first;
    expect_only_indexes(fresh.begin()->second);
  }
  [[nodiscard]] static bool persistent() { return std::get<0>(GetParam()); }

  // Every page that the backend can reach, by every reference there is.
  Dump dump() {
    Dump pages;
    for (std::uint32_t gref = hypervisor::kReservedGrants; gref < kGrefs; ++gref) {
      if (auto page = see(GrantRef(gref))) pages.emplace(GrantRef(gref), std::move(*page));
    }
    return pages;
  }
  // Two of the four indexes start at 1 (SHARED_RING_INIT); no request has been written yet.
  static void expect_only_indexes(Page page) {
    EXPECT_EQ(page[4], std::byte{1});
    EXPECT_EQ(page[12], std::byte{1});
    page[4] = page[12] = std::byte{0};
    EXPECT_EQ(page, Page(kPageSize, std::byte{0}));
  }
  // Beside the ring, and `except`, nothing but zeros.
  void expect_zeros(const std::set<GrantRef>& except = {}) {
    for (const auto& [gref, page] : dump()) {
      if (gref == ring_ || except.contains(gref)) continue;
      EXPECT_EQ(page, Page(kPageSize, std::byte{0})) << "gref " << gref.value();
    }
  }
  // A write of `sectors` sectors of kData, from within a page that is full of secrets.
  blkif::Request write(std::uint64_t sectors) {
    Io io{IoOp::write, Sectors(0), Sectors(sectors), buffer_.data() + kSectorSize, nullptr};
    std::fill_n(io.buffer, sectors * kSectorSize, kData);
    EXPECT_TRUE(channel_->submit(io));
    channel_->commit();
    return take();
  }

  GrantRef ring_{};
};

INSTANTIATE_TEST_SUITE_P(Pools, Untrusted,
                         testing::Combine(testing::Bool(), testing::Values("per-queue", "per-device")),
                         [](const auto& test) {
                           return std::string(std::get<0>(test.param) ? "persistent" : "granted_per_request") +
                                  (std::get<1>(test.param) == std::string("per-queue") ? "_per_queue" : "_per_device");
                         });

TEST_P(Untrusted, OfAWriteTheBackendSeesItsDataAndZerosAroundThem_XSA403) {
  ASSERT_NO_FATAL_FAILURE(connect_untrusted());
  const auto request = write(3);
  ASSERT_EQ(request.segment_count, 1);
  const blkif::Segment segment = request.direct_segments()[0];
  Page expected(kPageSize, std::byte{0});
  std::fill_n(expected.begin() + segment.first_sector * kSectorSize, 3 * kSectorSize, kData);
  EXPECT_EQ(see(segment.gref), expected);
  expect_zeros({segment.gref});
  answer(request);
  EXPECT_EQ(completion(), 0);
  EXPECT_EQ(see(segment.gref).has_value(), persistent());
  expect_zeros();
}

TEST_P(Untrusted, AReadGetsPagesWithoutOldDataAndLeavesNone_XSA403) {
  ASSERT_NO_FATAL_FAILURE(connect_untrusted());
  answer(write(8));
  EXPECT_EQ(completion(), 0);
  const auto request = ask(IoOp::read, 0, 12);
  ASSERT_EQ(request.segment_count, 2);
  expect_zeros();
  for (const auto& segment : request.direct_segments()) deliver(segment, kData);
  answer(request);
  EXPECT_EQ(completion(), 0);
  EXPECT_EQ(Page(buffer_.begin(), buffer_.begin() + 12 * kSectorSize), Page(12 * kSectorSize, kData));
  EXPECT_EQ(buffer_[12 * kSectorSize], kSecret);
  expect_zeros();
}

TEST_P(Untrusted, SegmentsOfALongerRequestAreNotInTheIndirectPageOfTheNextOne_XSA403) {
  ASSERT_NO_FATAL_FAILURE(connect_untrusted());
  for (const std::uint64_t pages : {30, 12}) {
    std::fill(buffer_.begin(), buffer_.end(), kData);
    const auto request = ask(IoOp::write, 0, pages * kSectorsPerPage);
    ASSERT_TRUE(request.indirect);
    ASSERT_EQ(request.segment_count, pages);
    const auto indirect = see(request.indirect_grefs[0]);
    ASSERT_TRUE(indirect.has_value());
    const std::size_t used = pages * blkif::kWireSegmentSize;
    EXPECT_EQ(Page(indirect->begin() + static_cast<std::ptrdiff_t>(used), indirect->end()),
              Page(kPageSize - used, std::byte{0}));
    answer(request);
    EXPECT_EQ(completion(), 0);
    expect_zeros();
  }
}

TEST_P(Untrusted, AFailedReadDeliversNothingAndLeavesNothing_XSA403) {
  ASSERT_NO_FATAL_FAILURE(connect_untrusted());
  const auto request = ask(IoOp::read, 0, 8);
  deliver(request.direct_segments()[0], kData);
  answer(request, blkif::ResponseStatus::error);
  EXPECT_EQ(completion(), EIO);
  EXPECT_EQ(buffer_[0], kSecret);
  expect_zeros();
}

// XSA-396, on a page that is granted for one request.
TEST_F(FrontendTest, AnUntrustedBackendThatKeepsAPageEndsTheDevice_XSA396) {
  back_->offer().persistent = false;
  ASSERT_NO_FATAL_FAILURE(connect({{"trusted", "0"}}));
  const auto request = ask(IoOp::read, 0, 8);
  const auto kept = back_->map(request.direct_segments()[0].gref);
  ASSERT_EQ(kept.status, platform::GrantStatus::okay);
  const auto frame = guest_->frame_of(kept.address);
  answer(request);
  EXPECT_EQ(completion(), EIO);
  EXPECT_EQ(submit(IoOp::read, 0, 8).error().code, ENODEV);
  device_->turn();
  EXPECT_NE(front_key("xblk-error").find("a grant it did not give back"), std::string::npos);
  EXPECT_EQ(back_->frontend_state(), "6");
  std::vector<platform::PageBlock> all;
  while (const auto page = guest_->allocate_pages(kDom0, 1)) all.push_back(*page);
  for (const auto& page : all) {
    EXPECT_NE(page.first_frame, *frame);
    guest_->free_pages(page);
  }
  back_->unmap(kept);
}

TEST_F(FrontendTest, TheToolstackMayDistrustTheBackendToo_XSA403) {
  ASSERT_TRUE(back_keys_.write(std::string(kFrontPath) + "/trusted", "0"));
  back_->offer().persistent = false;
  ASSERT_NO_FATAL_FAILURE(connect());
  EXPECT_EQ(front_key("xblk-negotiated/trusted"), "0");
  std::fill(buffer_.begin(), buffer_.end(), kSecret);
  const auto request = ask(IoOp::read, 0, 1);
  EXPECT_EQ(see(request.direct_segments()[0].gref), Page(kPageSize, std::byte{0}));
  answer(request);
  EXPECT_EQ(completion(), 0);
}

// What trusting the backend means, for comparison: nothing is copied, and the whole page is there to see.
TEST_F(FrontendTest, ATrustedBackendGetsTheCallersOwnPage) {
  back_->offer().persistent = false;
  ASSERT_NO_FATAL_FAILURE(connect());
  std::fill(buffer_.begin(), buffer_.end(), kSecret);
  const auto request = ask(IoOp::write, 0, 1);
  EXPECT_EQ(see(request.direct_segments()[0].gref), Page(kPageSize, kSecret));
  EXPECT_EQ(count(Counter::copied_bytes), 0u);
  answer(request);
  EXPECT_EQ(completion(), 0);
  EXPECT_EQ(see(request.direct_segments()[0].gref), std::nullopt);
}

}  // namespace
}  // namespace xblk::blkfront
