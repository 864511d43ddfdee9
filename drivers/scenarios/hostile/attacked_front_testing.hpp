// The fixture of tests on an AttackedFront: whatever a test does, the frontend's promises hold to its end.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <ostream>
#include <string>

#include "drivers/scenarios/hostile/attacked_front.hpp"

namespace xblk::scenarios {

// The ways a frontend reaches its backend's pages.
struct NamedFrontPath {
  const char* name;
  blkif::PolicyMap policy;

  friend std::ostream& operator<<(std::ostream& out, const NamedFrontPath& path) { return out << path.name; }
};
inline const std::array kFrontPaths = {
    NamedFrontPath{"persistent", {}},
    NamedFrontPath{"granted_per_request", {{"persistent", "0"}}},
    NamedFrontPath{"untrusted", {{"persistent", "0"}, {"trusted", "0"}}},
};
inline std::string name_of_front_path(const testing::TestParamInfo<NamedFrontPath>& test) {
  return test.param.name;
}

class AttackedFrontTest : public testing::Test {
 protected:
  // Not connected yet.
  AttackedFront& make(const AttackedFrontSetup& setup = {}) {
    finish();
    front_ = std::make_unique<AttackedFront>(setup);
    return *front_;
  }
  AttackedFront& connect(const AttackedFrontSetup& setup = {}) {
    make(setup);
    EXPECT_TRUE(front_->connect()) << front_->device().failure();
    return *front_;
  }
  // The device takes no more I/O, goes to Closed, and says why.
  void expect_ended(const std::string& reason) {
    front_->play({peer::back::Submit{}, peer::back::Turn{}});
    EXPECT_EQ(front_->refused(), ENODEV);
    EXPECT_EQ(front_->in_flight(), 0u);
    EXPECT_EQ(front_->back().frontend_state(), "6");
    EXPECT_NE(front_->front_key("xblk-error").find(reason), std::string::npos) << front_->front_key("xblk-error");
  }
  void TearDown() override { finish(); }

 private:
  void finish() {
    if (front_ == nullptr) return;
    front_->finish();
    EXPECT_EQ(front_->finding(), "");
  }
  std::unique_ptr<AttackedFront> front_;
};

}  // namespace xblk::scenarios
