// Flushes, barriers and discards: what they become on the ring, what is refused, and what happens when the backend
// cannot do what it offered.
#include <gtest/gtest.h>

#include <cerrno>
#include <cstring>
#include <vector>

#include "drivers/blkfront/frontend_testing.hpp"

namespace xblk::blkfront {
namespace {

using blkif::Op;
using blkif::ResponseStatus;

class Ordering : public FrontendTest {
 protected:
  void offer(bool flush, bool barrier) {
    back_->offer().flush = flush;
    back_->offer().barrier = barrier;
  }
  void offer_discard(bool secure) {
    back_->offer().discard = true;
    back_->offer().discard_secure = secure;
  }
};

TEST_F(Ordering, AFlushIsAFlushWhereTheBackendOffersIt) {
  offer(true, true);
  ASSERT_NO_FATAL_FAILURE(connect());
  const auto request = ask(IoOp::flush, 0, 0);
  EXPECT_EQ(request.op, Op::flush_diskcache);
  EXPECT_EQ(completion(), std::nullopt) << "not before it is answered";
  answer(request);
  EXPECT_EQ(completion(), 0);
}

TEST_F(Ordering, AFlushIsAnEmptyBarrierWhereThereAreOnlyBarriers) {
  offer(false, true);
  ASSERT_NO_FATAL_FAILURE(connect());
  const auto request = ask(IoOp::flush, 0, 0);
  EXPECT_EQ(request.op, Op::write_barrier);
  EXPECT_EQ(request.segment_count, 0);
  EXPECT_EQ(completion(), std::nullopt);
  answer(request);
  EXPECT_EQ(completion(), 0);
  EXPECT_EQ(count(Counter::requests_flush), 1u);
}

TEST_F(Ordering, WithNeitherAFlushIsRefused) {
  offer(false, false);
  ASSERT_NO_FATAL_FAILURE(connect());
  EXPECT_EQ(submit(IoOp::flush, 0, 0).error().code, EOPNOTSUPP);
  EXPECT_EQ(submit(IoOp::barrier, 0, 8).error().code, EOPNOTSUPP);
  EXPECT_EQ(front_key("xblk-negotiated/ordering"), "none");
}

TEST_F(Ordering, ABarrierCarriesDataAndMayBeEmpty) {
  offer(true, true);
  ASSERT_NO_FATAL_FAILURE(connect());
  std::memset(buffer_.data(), 0x5a, 3 * kPageSize);
  const auto request = ask(IoOp::barrier, 16, 20);
  EXPECT_EQ(request.op, Op::write_barrier);
  EXPECT_EQ(request.sector, Sectors(16));
  ASSERT_EQ(request.segment_count, 3);
  EXPECT_EQ(transfer_length(request.direct_segments()), Sectors(20));
  EXPECT_EQ(see(request.direct_segments()[1].gref), std::vector<std::byte>(kPageSize, std::byte{0x5a}));
  answer(request);
  EXPECT_EQ(completion(), 0);
  EXPECT_EQ(count(Counter::write_bytes), 20 * kSectorSize);
  const auto empty = ask(IoOp::barrier, 0, 0);
  EXPECT_EQ(empty.op, Op::write_barrier);
  EXPECT_EQ(empty.segment_count, 0);
  answer(empty);
  EXPECT_EQ(completion(), 0);
  EXPECT_EQ(count(Counter::requests_flush), 2u);
}

// Indirect requests know no barriers; a plain write among its parts could overtake what came before.
TEST_F(Ordering, AllPartsOfALongBarrierAreBarriers) {
  offer(true, true);
  ASSERT_NO_FATAL_FAILURE(connect());
  ASSERT_TRUE(submit(IoOp::barrier, 0, 25 * kSectorsPerPage));
  std::vector<blkif::Request> parts;
  for (const unsigned segments : {11, 11, 3}) {
    parts.push_back(take());
    EXPECT_EQ(parts.back().op, Op::write_barrier);
    EXPECT_FALSE(parts.back().indirect);
    EXPECT_EQ(parts.back().segment_count, segments);
  }
  EXPECT_EQ(parts[2].sector, Sectors(22 * kSectorsPerPage));
  answer(parts[0]);
  answer(parts[1]);
  EXPECT_EQ(completion(), std::nullopt);
  answer(parts[2]);
  EXPECT_EQ(completion(), 0);
}

TEST_F(Ordering, AFlushThatTheBackendCannotDoIsReportedAndTheNextOneIsABarrier) {
  offer(true, true);
  ASSERT_NO_FATAL_FAILURE(connect());
  EXPECT_EQ(front_key("xblk-negotiated/ordering"), "both");
  answer(ask(IoOp::flush, 0, 0), ResponseStatus::not_supported);
  EXPECT_EQ(completion(), EOPNOTSUPP);
  EXPECT_FALSE(device_->info().negotiated.flush);
  const auto barrier = ask(IoOp::flush, 0, 0);
  EXPECT_EQ(barrier.op, Op::write_barrier);
  device_->turn();
  EXPECT_EQ(front_key("xblk-negotiated/ordering"), "barrier");
  answer(barrier, ResponseStatus::not_supported);
  EXPECT_EQ(completion(), EOPNOTSUPP);
  EXPECT_EQ(submit(IoOp::flush, 0, 0).error().code, EOPNOTSUPP) << "nothing is left to flush with";
  device_->turn();
  EXPECT_EQ(front_key("xblk-negotiated/ordering"), "none");
  answer(ask(IoOp::read, 0, 8));
  EXPECT_EQ(completion(), 0) << "the device goes on";
  EXPECT_TRUE(device_->connected());
}

TEST_F(Ordering, AFailedFlushIsAnErrorAndNoMissingFeature) {
  offer(true, false);
  ASSERT_NO_FATAL_FAILURE(connect());
  answer(ask(IoOp::flush, 0, 0), ResponseStatus::error);
  EXPECT_EQ(completion(), EIO);
  EXPECT_TRUE(device_->info().negotiated.flush);
}

TEST_F(Ordering, AReadThatIsAnsweredWithNotSupportedIsJustAnError) {
  offer(true, true);
  ASSERT_NO_FATAL_FAILURE(connect());
  answer(ask(IoOp::read, 0, 8), ResponseStatus::not_supported);
  EXPECT_EQ(completion(), EOPNOTSUPP);
  EXPECT_TRUE(device_->info().negotiated.flush);
  EXPECT_TRUE(device_->info().negotiated.barrier);
}

TEST_F(Ordering, ADiscardIsSecureOnlyIfAskedFor) {
  offer_discard(true);
  ASSERT_NO_FATAL_FAILURE(connect());
  EXPECT_EQ(front_key("xblk-negotiated/discard"), "secure");
  const auto plain = ask(IoOp::discard, 8, 16);
  EXPECT_EQ(plain.op, Op::discard);
  EXPECT_EQ(plain.sector, Sectors(8));
  EXPECT_EQ(plain.discard_sectors, Sectors(16));
  EXPECT_FALSE(plain.discard_secure);
  const auto secure = ask(IoOp::discard, 8, 16, true);
  EXPECT_TRUE(secure.discard_secure);
  answer(plain);
  answer(secure);
  EXPECT_EQ(completion(), 0);
  EXPECT_EQ(completion(), 0);
}

TEST_F(Ordering, ASecureDiscardThatIsNotOfferedIsRefusedAndNeverMadeAPlainOne) {
  offer_discard(false);
  ASSERT_NO_FATAL_FAILURE(connect());
  EXPECT_EQ(submit(IoOp::discard, 8, 16, true).error().code, EOPNOTSUPP);
  answer(ask(IoOp::discard, 8, 16));
  EXPECT_EQ(completion(), 0);
  EXPECT_EQ(front_key("xblk-negotiated/discard"), "on");
}

TEST_F(Ordering, ABackendThatRefusesASecureDiscardMayStillDoPlainOnes) {
  offer_discard(true);
  ASSERT_NO_FATAL_FAILURE(connect());
  answer(ask(IoOp::discard, 0, 8, true), ResponseStatus::not_supported);
  EXPECT_EQ(completion(), EOPNOTSUPP);
  EXPECT_FALSE(device_->info().negotiated.discard_secure);
  answer(ask(IoOp::discard, 0, 8), ResponseStatus::not_supported);
  EXPECT_EQ(completion(), EOPNOTSUPP);
  EXPECT_EQ(submit(IoOp::discard, 0, 8).error().code, EOPNOTSUPP);
  device_->turn();
  EXPECT_EQ(front_key("xblk-negotiated/discard"), "off");
}

TEST_F(Ordering, TheNextConnectOffersEverythingAgain) {
  offer(true, true);
  offer_discard(true);
  ASSERT_NO_FATAL_FAILURE(connect());
  answer(ask(IoOp::flush, 0, 0), ResponseStatus::not_supported);
  answer(ask(IoOp::discard, 0, 8), ResponseStatus::not_supported);
  EXPECT_EQ(completion(), EOPNOTSUPP);
  EXPECT_EQ(completion(), EOPNOTSUPP);
  ASSERT_TRUE(back_keys_.write(std::string(kFrontPath) + "/xblk-policy/reconnect", "1"));
  device_->turn();
  back_->release();
  back_->set_state("6");
  device_->turn();
  ASSERT_EQ(back_->frontend_state(), "1");
  const blkif::BackendOffer offered = back_->offer();
  back_ = make_backend();
  back_->offer() = offered;
  ASSERT_NO_FATAL_FAILURE(negotiate());
  EXPECT_TRUE(device_->info().negotiated.flush);
  EXPECT_TRUE(device_->info().negotiated.discard);
  EXPECT_EQ(ask(IoOp::flush, 0, 0).op, Op::flush_diskcache);
}

}  // namespace
}  // namespace xblk::blkfront
