// The long forms of attacks by processes.
#include <gtest/gtest.h>

#include "drivers/scenarios/hostile/flood_testing.hpp"

namespace xblk::scenarios {
namespace {

TEST(BackendXsa349ProcessesLong, AMillionStatesDoNotGrowTheHostNorStopOthers) {
  flood_states_beside_an_honest_guest(1'000'000);
}

}  // namespace
}  // namespace xblk::scenarios
