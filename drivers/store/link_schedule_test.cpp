#include "drivers/store/link_schedule.hpp"

#include <gtest/gtest.h>

#include <deque>

namespace xblk::store {
namespace {

constexpr Instant at_us(std::int64_t us) {
  return Instant(us * 1000);
}

TEST(LinkSchedule, AnIdleLinkBringsATransferAfterItsLengthAndOneRoundTrip) {
  LinkSchedule link({1'000'000, micros(300)});  // a byte per microsecond
  EXPECT_EQ(link.transfer(at_us(1000), Bytes(500)), at_us(1000 + 500 + 300));
  EXPECT_EQ(link.transfer(at_us(5000), Bytes(1)), at_us(5301)) << "idle time is not saved up";
}

TEST(LinkSchedule, TransfersFollowOneAnotherAndTheirRoundTripsOverlap) {
  LinkSchedule link({1'000'000, micros(300)});
  EXPECT_EQ(link.transfer(at_us(0), Bytes(100)), at_us(400));
  EXPECT_EQ(link.transfer(at_us(0), Bytes(100)), at_us(500));
  EXPECT_EQ(link.transfer(at_us(150), Bytes(100)), at_us(600)) << "queued behind the second";
  EXPECT_EQ(link.transfer(at_us(300), Bytes(100)), at_us(700)) << "free at that very instant";
  EXPECT_EQ(link.transfer(at_us(401), Bytes(100)), at_us(801));
}

TEST(LinkSchedule, ACommandTakesTheRoundTripAloneAndOccupiesNothing) {
  LinkSchedule link({1'000'000, micros(300)});
  EXPECT_EQ(link.transfer(at_us(0), Bytes(10'000)), at_us(10'300));
  EXPECT_EQ(link.command(at_us(50)), at_us(350));
  EXPECT_EQ(link.transfer(at_us(50), Bytes(0)), at_us(10'300));
  EXPECT_EQ(link.transfer(at_us(50), Bytes(1)), at_us(10'301));
}

// 44 KiB at 70 MB/s are 643,657 and 1/7 ns.
TEST(LinkSchedule, FractionsOfANanosecondAddUp) {
  LinkSchedule link({70'000'000, Nanos(0)});
  Instant last;
  for (int i = 0; i < 7'000'000; ++i) last = link.transfer(Instant(0), Bytes(45056));
  EXPECT_EQ(last, Instant(4'505'600'000'000)) << "7 million x 45056 bytes / 70 MB/s, in ns";
}

TEST(LinkSchedule, OneLargeTransferTakesAsLongAsItsParts) {
  LinkSchedule whole({3'000'000'000, Nanos(7)});
  LinkSchedule parts({3'000'000'000, Nanos(7)});
  Instant last;
  for (int i = 0; i < 1000; ++i) last = parts.transfer(Instant(1), Bytes(512));
  EXPECT_EQ(last, whole.transfer(Instant(1), Bytes(512'000)));
}

TEST(LinkSchedule, AStaleClockDoesNotGoBackBeforeTheLink) {
  LinkSchedule link({1'000'000, Nanos(0)});
  EXPECT_EQ(link.transfer(at_us(100), Bytes(10)), at_us(110));
  EXPECT_EQ(link.transfer(at_us(90), Bytes(10)), at_us(120));
}

// Seed 001 in numbers: dd's 44 KiB requests, two at a time, over an iSCSI link of 70 MB/s. A backend that looks for
// requests only when the two in flight have ended pays the round trip per pair; one that refills at once hides it.
TEST(LinkSchedule, TwoInFlightOverTheLinkOfSeed001) {
  constexpr Link kIscsi{70'000'000, micros(700)};
  constexpr Bytes kRequest(44 * 1024);
  constexpr int kRequests = 20'000;
  const auto rate = [&](Instant end) {
    return static_cast<double>(kRequest.value()) * kRequests / (static_cast<double>(end.ns()) / 1e9) / 1e6;  // MB/s
  };

  LinkSchedule waits(kIscsi);
  Instant now(0);
  for (int i = 0; i < kRequests; i += 2) {
    waits.transfer(now, kRequest);
    now = waits.transfer(now, kRequest);
  }
  EXPECT_NEAR(rate(now), 45.3, 0.1) << "the seed's before: 43.8, 44.9, 46.0";

  LinkSchedule refills(kIscsi);
  std::deque<Instant> in_flight;
  now = Instant(0);
  for (int i = 0; i < kRequests; ++i) {
    if (in_flight.size() == 2) {
      now = in_flight.front();
      in_flight.pop_front();
    }
    in_flight.push_back(refills.transfer(now, kRequest));
  }
  EXPECT_NEAR(rate(in_flight.back()), 67.1, 0.1) << "the seed's after: 60.5, 62.6, 63.1";
}

}  // namespace
}  // namespace xblk::store
