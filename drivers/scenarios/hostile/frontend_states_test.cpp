// Backends that attack the frontend through the key store: states that no honest one has, properties that make no
// sense, and responses while the frontend goes away.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <string>
#include <utility>
#include <vector>

#include "drivers/scenarios/hostile/attacked_front_testing.hpp"

namespace xblk::scenarios {
namespace {

using peer::back::Close;
using peer::back::Detach;
using peer::back::Key;
using peer::back::Negotiate;
using peer::back::Reap;
using peer::back::Reconnect;
using peer::back::RemoveKey;
using peer::back::Respond;
using peer::back::State;
using peer::back::Submit;
using peer::back::Turn;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// ---- "states": jumps, repetitions, and the end in the middle of I/O
// --------------------------------------------------

class FrontendStates : public AttackedFrontTest {};

TEST_F(FrontendStates, ConnectedAtOnceIsConnectedToOnlyWithItsKeys) {
  // With InitWait left out there are no limits: those of the spec hold (blkif.h).
  AttackedFront& front = make();
  front.play({State{"4"}, Turn{}});
  EXPECT_EQ(front.back().frontend_state(), "6") << "no sectors, no device";
  EXPECT_THAT(front.device().failure(), HasSubstr("sectors"));
}

TEST_F(FrontendStates, ASecondInitWaitDoesNotSetTheRingsUpAgain) {
  AttackedFront& front = make();
  front.play({Negotiate{}, Turn{}});
  const std::string ring = front.front_key("ring-ref");
  const std::uint64_t grants = front.count(Counter::grants_issued);
  front.play({State{"2"}, Turn{}, State{"2"}, Turn{}});
  EXPECT_EQ(front.front_key("ring-ref"), ring);
  EXPECT_EQ(front.count(Counter::grants_issued), grants);
  front.play({Negotiate{}, Turn{}});
  EXPECT_TRUE(front.device().connected());
}

TEST_F(FrontendStates, ConnectedWithoutKeysEndsWithTheNameOfTheFirst) {
  AttackedFront& front = make();
  front.play({Negotiate{}, Turn{}});
  EXPECT_EQ(front.back().frontend_state(), "3");
  front.play({State{"4"}, Turn{}});
  EXPECT_FALSE(front.device().connected());
  EXPECT_THAT(front.device().failure(), HasSubstr("sectors"));
}

TEST_F(FrontendStates, ClosingInTheMiddleOfIoWaitsForWhatIsInFlightAndTakesNoMore) {
  AttackedFront& front = connect();
  front.play({Submit{}, State{"5"}, Turn{}, Submit{}});
  EXPECT_EQ(front.refused(), EAGAIN);
  EXPECT_EQ(front.back().frontend_state(), "5");
  front.play({Respond{}, Turn{}, Reap{}});
  EXPECT_THAT(front.errors(), ElementsAre(0));
  EXPECT_EQ(front.back().frontend_state(), "6");
}

TEST_F(FrontendStates, ClosedInTheMiddleOfIoFailsItAtOnce) {
  for (const char* state : {"6", "0", "9", "junk", ""}) {
    SCOPED_TRACE(state);
    AttackedFront& front = connect();
    front.play({Submit{}, Submit{.page = 1}, Detach{}, State{state}, Turn{}, Reap{}});
    EXPECT_THAT(front.errors(), ElementsAre(ENODEV, ENODEV));
    EXPECT_TRUE(front.device().closed());
    EXPECT_NE(front.device().failure(), "");
  }
}

TEST_F(FrontendStates, JumpsWhileItIsConnectedChangeNothing) {
  AttackedFront& front = connect();
  for (const char* state : {"1", "2", "3", "4", "7", "8", "4", "2", "4", "1"}) {
    SCOPED_TRACE(state);
    front.play({Submit{}, State{state}, Turn{}, Respond{}, Reap{}});
    EXPECT_EQ(front.errors().back(), 0);
    EXPECT_TRUE(front.device().connected());
  }
  EXPECT_EQ(front.errors().size(), 10u);
}

TEST_F(FrontendStates, ADriverWhosePredecessorDiedWaitsUntilTheBackendHasClosed) {
  AttackedFront& front = make({.starts_at = "4"});
  EXPECT_EQ(front.back().frontend_state(), "6") << "not Initialising: the backend serves the old rings";
  front.play({Turn{}, State{"6"}, Turn{}});
  EXPECT_EQ(front.back().frontend_state(), "1");
  EXPECT_TRUE(front.connect());
}

// ---- properties
// ------------------------------------------------------------------------------------------------------

class FrontendProperties : public AttackedFrontTest,
                           public testing::WithParamInterface<std::pair<const char*, const char*>> {};

TEST_P(FrontendProperties, AValueThatMakesNoSenseIsRefusedWithItsName) {
  const auto& [key, value] = GetParam();
  AttackedFront& front = make();
  front.play({Negotiate{}, Turn{}, Negotiate{}, Key{key, value}, Turn{}});
  EXPECT_FALSE(front.device().connected());
  EXPECT_TRUE(front.device().closed());
  EXPECT_EQ(front.back().frontend_state(), "6");
  EXPECT_THAT(front.device().failure(), HasSubstr(key));
  EXPECT_THAT(front.front_key("xblk-error"), HasSubstr(key));
}

INSTANTIATE_TEST_SUITE_P(
    Values, FrontendProperties,
    testing::Values(std::pair{"sector-size", "0"}, std::pair{"sector-size", "513"}, std::pair{"sector-size", "65536"},
                    std::pair{"sector-size", "256"}, std::pair{"sector-size", "4294967808"}, std::pair{"sectors", "0"},
                    std::pair{"sectors", "-1"}, std::pair{"sectors", "junk"},
                    std::pair{"sectors", "18446744073709551615"}, std::pair{"physical-sector-size", "0"},
                    std::pair{"physical-sector-size", "513"}, std::pair{"discard-granularity", "0"},
                    std::pair{"discard-granularity", "513"}, std::pair{"discard-alignment", "-1"},
                    std::pair{"info", "-1"}, std::pair{"feature-flush-cache", "2"}, std::pair{"feature-discard", "yes"},
                    std::pair{"feature-persistent", "2"}),
    [](const auto& test) {
      std::string name = std::string(test.param.first) + "_" + test.param.second;
      std::replace_if(
          name.begin(), name.end(), [](char c) { return std::isalnum(static_cast<unsigned char>(c)) == 0; }, '_');
      return name;
    });

class FrontendLimits : public AttackedFrontTest {};

TEST_F(FrontendLimits, MoreThanItCanUseIsCutAndNonsenseIsRefused) {
  for (const char* key : {"multi-queue-max-queues", "max-ring-page-order", "feature-max-indirect-segments"}) {
    SCOPED_TRACE(key);
    AttackedFront& large = make();
    large.play({Negotiate{}, Key{key, "4294967295"}, Turn{}});
    EXPECT_EQ(large.back().frontend_state(), "3");
    EXPECT_EQ(large.front_key("ring-page-order"), "");
    for (const char* nonsense : {"-1", "junk", "4294967296", ""}) {
      AttackedFront& front = make();
      front.play({Negotiate{}, Key{key, nonsense}, Turn{}});
      EXPECT_EQ(front.back().frontend_state(), "6");
      EXPECT_THAT(front.device().failure(), HasSubstr(key));
    }
  }
  AttackedFront& front = make();
  front.play({Negotiate{}, Key{"multi-queue-max-queues", "0"}, Turn{}});
  EXPECT_EQ(front.back().frontend_state(), "6") << "no queue, no device";
}

TEST_F(FrontendLimits, ALiveResizeToNonsenseKeepsTheSizeThatWas) {
  AttackedFront& front = connect();
  const Sectors capacity = front.device().info().capacity;
  for (const char* sectors : {"0", "-1", "junk", "18446744073709551615", ""}) {
    front.play({Key{"sectors", sectors}, State{"4"}, Turn{}});
    EXPECT_EQ(front.device().info().capacity, capacity) << sectors;
  }
  front.play({RemoveKey{"sectors"}, State{"4"}, Turn{}});
  EXPECT_EQ(front.device().info().capacity, capacity);
}

// ---- "unplug": responses while the frontend takes its rings down
// -----------------------------------------------------

class FrontendUnplug : public AttackedFrontTest, public testing::WithParamInterface<NamedFrontPath> {};
INSTANTIATE_TEST_SUITE_P(Paths, FrontendUnplug, testing::ValuesIn(kFrontPaths), name_of_front_path);

TEST_P(FrontendUnplug, AResponseAtEachStepOfTheEndIsTakenOrIgnored) {
  // 0: before it closes; then while it closes, when it has closed, and when the backend has, too.
  for (int when = 0; when < 4; ++when) {
    SCOPED_TRACE(when);
    AttackedFront& front = connect({.policy = GetParam().policy});
    front.play({Submit{}, Submit{.page = 1}});
    const auto answer_now = [&](int moment) {
      if (moment == when) front.play({Respond{}, Respond{}});
    };
    answer_now(0);
    front.play({Close{}, Turn{}});
    answer_now(1);
    front.play({State{"5"}, Turn{}});
    answer_now(2);
    if (when > 2) front.play(State{"6"});  // it does not wait for what will not come
    front.play({Turn{}, Reap{}});
    answer_now(3);
    front.play({Turn{}, Reap{}});
    EXPECT_THAT(front.errors(), when > 2 ? ElementsAre(ENODEV, ENODEV) : ElementsAre(0, 0));
    EXPECT_EQ(front.back().frontend_state(), "6");
  }
}

TEST_P(FrontendUnplug, AReconnectTakesOldResponsesAndNeverThoseOfTheOldRing) {
  AttackedFront& front = connect({.policy = GetParam().policy});
  front.play({Submit{}, Reconnect{}, Turn{}});
  EXPECT_EQ(front.back().frontend_state(), "5");
  front.play({Respond{.again = true}, Turn{}, Reap{}, Respond{}, Negotiate{}, Turn{}});
  EXPECT_THAT(front.errors(), ElementsAre(0));
  EXPECT_TRUE(front.connect());
  front.play({Submit{}, Respond{}, Reap{}});
  EXPECT_THAT(front.errors(), ElementsAre(0, 0));
}

}  // namespace
}  // namespace xblk::scenarios
