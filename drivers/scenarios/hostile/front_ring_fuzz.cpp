// A hostile backend against the real frontend: the first bytes choose the frontend's policies, the others are
// operations of the backend and of the frontend's user. The promises of AttackedFront hold.
#include <cstdint>
#include <cstdio>

#include "drivers/base/check.hpp"
#include "drivers/peer/back_script.hpp"
#include "drivers/peer/fuzz_input.hpp"
#include "drivers/scenarios/hostile/attacked_front.hpp"

namespace xblk::scenarios {
namespace {

constexpr int kOperationsMax = 256;  // so that one input takes a bounded time

AttackedFrontSetup read_setup(peer::FuzzInput& input) {
  const std::uint8_t bits = input.take();
  AttackedFrontSetup setup;
  setup.policy["persistent"] = (bits & 1) != 0 ? "0" : "1";
  setup.policy["trusted"] = (bits & 2) != 0 ? "0" : "1";
  setup.policy["ring-page-order"] = (bits & 4) != 0 ? "1" : "0";
  setup.policy["indirect-segments"] = (bits & 8) != 0 ? "0" : "32";
  setup.policy["pools"] = (bits & 16) != 0 ? "per-device" : "per-queue";
  setup.policy["event-holdoff"] = (bits & 32) != 0 ? "8" : "1";
  setup.backend_persistent = (bits & 64) == 0;
  return setup;
}

void run(peer::FuzzInput input) {
  AttackedFront front(read_setup(input));
  // Most inputs start connected; the others fight for it.
  if (input.below(4) != 0) static_cast<void>(front.connect());
  for (int i = 0; i < kOperationsMax && !input.empty(); ++i) front.play(peer::read_back_operation(input));
  front.finish();
  if (!front.finding().empty()) std::fprintf(stderr, "front_ring_fuzz: %s\n", front.finding().c_str());
  XBLK_CHECK(front.finding().empty(), "the frontend keeps its promises whatever the backend does");
}

}  // namespace
}  // namespace xblk::scenarios

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  xblk::scenarios::run({data, size});
  return 0;
}
