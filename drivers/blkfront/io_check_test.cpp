#include "drivers/blkfront/io_check.hpp"

#include <gtest/gtest.h>

#include <cerrno>

namespace xblk::blkfront {
namespace {

class IoCheck : public testing::Test {
 protected:
  IoCheck() {
    info_.capacity = Sectors(1000);
    info_.negotiated.flush = info_.negotiated.barrier = true;
    info_.negotiated.discard = info_.negotiated.discard_secure = true;
  }
  int check(IoOp op, std::uint64_t sector, std::uint64_t count, bool secure = false) {
    Features features;
    features.offer(info_.negotiated);
    const auto status = check_io({op, Sectors(sector), Sectors(count), memory_, nullptr, secure}, info_, features);
    return status ? 0 : status.error().code;
  }
  DeviceInfo info_;
  alignas(kSectorSize) std::byte memory_[kSectorSize];
};

TEST_F(IoCheck, AnIoLiesWithinTheDevice) {
  for (const IoOp op : {IoOp::read, IoOp::write, IoOp::barrier, IoOp::discard}) {
    EXPECT_EQ(check(op, 0, 1000), 0);
    EXPECT_EQ(check(op, 999, 1), 0);
    EXPECT_EQ(check(op, 1000, 1), EINVAL);
    EXPECT_EQ(check(op, 999, 2), EINVAL);
    EXPECT_EQ(check(op, ~0ull - 3, 8), EINVAL) << "their sum overflows";
    EXPECT_EQ(check(op, 8, ~0ull), EINVAL);
  }
}

TEST_F(IoCheck, NothingIsRefusedAsLengthExceptOfABarrier) {
  for (const IoOp op : {IoOp::read, IoOp::write, IoOp::discard}) EXPECT_EQ(check(op, 8, 0), EINVAL);
  EXPECT_EQ(check(IoOp::barrier, 0, 0), 0);
  EXPECT_EQ(check(IoOp::flush, 0, 0), 0);
}

TEST_F(IoCheck, AnIoIsAMultipleOfTheSectorSize) {
  info_.sector_size = 4096;
  EXPECT_EQ(check(IoOp::read, 8, 16), 0);
  EXPECT_EQ(check(IoOp::read, 4, 16), EINVAL);
  EXPECT_EQ(check(IoOp::write, 8, 4), EINVAL);
}

TEST_F(IoCheck, AReadOnlyDeviceIsReadAndFlushed) {
  info_.readonly = true;
  EXPECT_EQ(check(IoOp::read, 0, 8), 0);
  EXPECT_EQ(check(IoOp::flush, 0, 0), 0);
  EXPECT_EQ(check(IoOp::write, 0, 8), EROFS);
  EXPECT_EQ(check(IoOp::barrier, 0, 8), EROFS);
  EXPECT_EQ(check(IoOp::discard, 0, 8), EROFS);  // it destroys data (CVE-2013-2140)
}

TEST_F(IoCheck, WhatIsNotOfferedIsNotSupported) {
  info_.negotiated = {};
  EXPECT_EQ(check(IoOp::flush, 0, 0), EOPNOTSUPP);
  EXPECT_EQ(check(IoOp::barrier, 0, 8), EOPNOTSUPP);
  EXPECT_EQ(check(IoOp::barrier, 0, 0), EOPNOTSUPP);
  EXPECT_EQ(check(IoOp::discard, 0, 8), EOPNOTSUPP);
  info_.negotiated.discard = true;
  EXPECT_EQ(check(IoOp::discard, 0, 8), 0);
  EXPECT_EQ(check(IoOp::discard, 0, 8, true), EOPNOTSUPP);
  info_.negotiated.barrier = true;
  EXPECT_EQ(check(IoOp::flush, 0, 0), 0) << "as an empty barrier";
}

// blkif.h, notes 4 and 5.
TEST_F(IoCheck, ADiscardIsMadeOfWholeExtentsFromTheAlignmentOn) {
  info_.negotiated.discard_granularity = 4096;
  info_.negotiated.discard_alignment = 1024;
  EXPECT_EQ(check(IoOp::discard, 2, 8), 0);
  EXPECT_EQ(check(IoOp::discard, 10, 80), 0);
  EXPECT_EQ(check(IoOp::discard, 0, 8), EINVAL);
  EXPECT_EQ(check(IoOp::discard, 2, 4), EINVAL);
  EXPECT_EQ(check(IoOp::discard, 3, 8), EINVAL);
  EXPECT_EQ(check(IoOp::discard, 994, 6), 0) << "the device ends within the last extent";
  EXPECT_EQ(check(IoOp::discard, 994, 5), EINVAL);
  info_.negotiated.discard_alignment = 4096 + 1024;
  EXPECT_EQ(check(IoOp::discard, 2, 8), 0) << "an extent further on is as good";
}

TEST_F(IoCheck, DataBeginAtASectorOfMemory) {
  Features features;
  Io io{IoOp::read, Sectors(0), Sectors(1), memory_ + 8};
  EXPECT_EQ(check_io(io, info_, features).error().code, EINVAL);
  io.op = IoOp::write;
  EXPECT_EQ(check_io(io, info_, features).error().code, EINVAL);
}

}  // namespace
}  // namespace xblk::blkfront
