#include <gtest/gtest.h>

#include "drivers/scenarios/storm_emu.hpp"

namespace xblk::scenarios {
namespace {

TEST(StormEmuLong, SixtyFourDevicesComeBackFromTwoThousandReconnects) {
  storm_over_processes(640003, 30);
}

}  // namespace
}  // namespace xblk::scenarios
