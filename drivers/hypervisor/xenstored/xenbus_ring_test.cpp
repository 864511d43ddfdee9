// The guest's end of the ring page against a daemon's end played by the test.
#include "drivers/hypervisor/xenstored/xenbus_ring.hpp"

#include <gtest/gtest.h>

extern "C" {
#include <stdint.h>

#include <xen/io/xs_wire.h>
}

#include <array>

#include "drivers/base/prng.hpp"

namespace xblk::hypervisor {
namespace {

class XenbusRingTest : public ::testing::Test {
 protected:
  xenstore_domain_interface& shared() { return *reinterpret_cast<xenstore_domain_interface*>(page_.data()); }
  // The daemon takes `count` bytes of requests.
  std::string take(std::size_t count) {
    std::string taken;
    for (; count > 0; --count) taken += shared().req[MASK_XENSTORE_IDX(shared().req_cons++)];
    return taken;
  }
  void put(const std::string& bytes) {
    for (const char byte : bytes) shared().rsp[MASK_XENSTORE_IDX(shared().rsp_prod++)] = byte;
  }
  void start_at(std::uint32_t index) {
    shared().req_prod = shared().req_cons = index;
    shared().rsp_prod = shared().rsp_cons = index;
  }

  alignas(4096) std::array<std::byte, 4096> page_{};
  XenbusRing ring_{page_.data()};
};

TEST_F(XenbusRingTest, MovesNothingWhenThereIsNothing) {
  std::string none;
  bool moved = false;
  EXPECT_TRUE(ring_.send(none, moved));
  EXPECT_TRUE(ring_.receive(none, moved));
  EXPECT_FALSE(moved);
}

TEST_F(XenbusRingTest, SendsWhatFitsAndKeepsTheRest) {
  std::string bytes(XENSTORE_RING_SIZE + 10, 'x');
  bool moved = false;
  ASSERT_TRUE(ring_.send(bytes, moved));
  EXPECT_TRUE(moved);
  EXPECT_EQ(bytes.size(), 10U);
  moved = false;
  ASSERT_TRUE(ring_.send(bytes, moved));
  EXPECT_FALSE(moved);  // full
  take(4);
  ASSERT_TRUE(ring_.send(bytes, moved));
  EXPECT_EQ(bytes.size(), 6U);
}

TEST_F(XenbusRingTest, BytesSurviveTheWrapOfRingAndIndex) {
  constexpr std::uint64_t kSeed = 20;
  SCOPED_TRACE("seed " + std::to_string(kSeed));
  Prng prng(kSeed);
  start_at(0xFFFFFE00U);
  std::string out, expected_out, seen_out, expected_in, seen_in;
  for (int round = 0; round < 200; ++round) {
    const std::string chunk(prng.below(900), static_cast<char>('a' + round % 26));
    out += chunk;
    expected_out += chunk;
    bool moved = false;
    ASSERT_TRUE(ring_.send(out, moved));
    seen_out += take(prng.below(shared().req_prod - shared().req_cons + 1));
    const std::string reply(prng.below(XENSTORE_RING_SIZE), static_cast<char>('A' + round % 26));
    put(reply);
    expected_in += reply;
    ASSERT_TRUE(ring_.receive(seen_in, moved));
  }
  while (shared().req_prod != shared().req_cons || !out.empty()) {
    bool moved = false;
    seen_out += take(shared().req_prod - shared().req_cons);
    ASSERT_TRUE(ring_.send(out, moved));
  }
  EXPECT_EQ(seen_out, expected_out);
  EXPECT_EQ(seen_in, expected_in);
}

TEST_F(XenbusRingTest, ImpossibleIndexesAndReportedErrorsEndTheConnection) {
  std::string bytes = "x";
  bool moved = false;
  shared().req_cons = 1;  // ahead of the producer
  EXPECT_FALSE(ring_.send(bytes, moved));
  shared().req_cons = 0;
  shared().rsp_prod = XENSTORE_RING_SIZE + 1;
  EXPECT_FALSE(ring_.receive(bytes, moved));
  shared().rsp_prod = 0;
  shared().error = XENSTORE_ERROR_PROTO;
  EXPECT_FALSE(ring_.receive(bytes, moved));
  EXPECT_FALSE(ring_.send(bytes, moved));
  EXPECT_FALSE(moved);
}

}  // namespace
}  // namespace xblk::hypervisor
