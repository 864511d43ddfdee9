// The fixture of tests on an AttackedRing: whatever a test does, the backend's promises hold to its end.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "drivers/scenarios/hostile/attacked_ring.hpp"

namespace xblk::scenarios {

class AttackedRingTest : public testing::Test {
 protected:
  AttackedRing& connect(const AttackedRingSetup& setup = {}) {
    finish();
    ring_ = std::make_unique<AttackedRing>(setup);
    const auto refused = ring_->connect();
    EXPECT_FALSE(refused) << *refused;
    return *ring_;
  }
  void TearDown() override { finish(); }

  // Of all responses so far, oldest first.
  [[nodiscard]] std::vector<blkif::ResponseStatus> statuses() const {
    std::vector<blkif::ResponseStatus> statuses;
    for (const auto& response : ring_->responses()) statuses.push_back(response.status);
    return statuses;
  }

 private:
  void finish() {
    if (ring_ == nullptr) return;
    ring_->disconnect();
    EXPECT_EQ(ring_->finding(), "");
  }
  std::unique_ptr<AttackedRing> ring_;
};

}  // namespace xblk::scenarios
