// A hostile frontend against one ring of the real backend: the first bytes choose ring and policies, the others are
// operations. The promises of AttackedRing hold after each of them.
#include <cstdint>
#include <cstdio>

#include "drivers/base/check.hpp"
#include "drivers/peer/front_script.hpp"
#include "drivers/peer/fuzz_input.hpp"
#include "drivers/scenarios/hostile/attacked_ring.hpp"

namespace xblk::scenarios {
namespace {

constexpr int kOperationsMax = 256;  // so that one input takes a bounded time

AttackedRingSetup read_setup(peer::FuzzInput& input) {
  AttackedRingSetup setup;
  const std::uint8_t ring = input.take();
  setup.abi = (ring & 1) != 0 ? blkif::Abi::x86_32 : blkif::Abi::x86_64;
  setup.ring_page_order = (ring & 2) != 0 ? 1 : 0;
  setup.readonly = (ring & 4) != 0;
  setup.store_at_once = (ring & 8) == 0;
  setup.mappings_max = (ring & 16) != 0 ? 8 : 1024;
  blkif::BackPolicy& policy = setup.policy;
  policy.indirect_segments = (ring & 32) != 0 ? 0 : 256;
  policy.final_check = (ring & 64) != 0 ? blkif::FinalCheck::response : blkif::FinalCheck::dispatch;
  policy.event_holdoff = (ring & 128) != 0 ? 8 : 1;
  const std::uint8_t path = input.take();
  policy.persistent = path % 4 == 0;
  policy.data_path = static_cast<blkif::DataPath>((path + 2) % 4 % 3);  // of 1, 2, 3: map, copy, hybrid
  policy.hybrid_threshold = 8192;
  policy.unmap_batch = (path & 16) != 0 ? 1 : 32;
  policy.max_persistent_grants = (path & 32) != 0 ? 3 : 1056;
  policy.persistent_lookup = static_cast<blkif::Lookup>((path >> 6) % 3);
  const std::uint8_t offers = input.take();
  policy.ordering = static_cast<blkif::Ordering>(offers % 4);
  policy.discard = static_cast<blkif::Discard>((offers >> 2) % 3);
  policy.persistent_purge = (offers & 16) != 0 ? blkif::Purge::off : blkif::Purge::lru;
  policy.persistent_unused_ms = (offers & 32) != 0 ? 1 : 60000;
  policy.max_free_pages = (offers & 64) != 0 ? 0 : 1024;
  return setup;
}

void run(peer::FuzzInput input) {
  AttackedRing ring(read_setup(input));
  static_cast<void>(ring.connect());
  for (int i = 0; i < kOperationsMax && !input.empty(); ++i) {
    switch (input.below(16)) {
      case 0:
        ring.disconnect();
        break;
      case 1:
        static_cast<void>(ring.connect());
        break;
      case 2:
        if (!ring.connected()) static_cast<void>(ring.attach());
        break;
      case 3: {
        const std::size_t position = input.take();
        ring.finish(position, input.below(8) == 0 ? EIO : 0);
        break;
      }
      case 4:
        ring.env().advance_to(ring.env().now() + millis(input.take()));
        break;
      default:
        ring.play(peer::read_front_operation(input, peer::FrontPlayer<ModelPlatform>::kPages));
    }
  }
  ring.disconnect();
  if (!ring.finding().empty()) std::fprintf(stderr, "ring_fuzz: %s\n", ring.finding().c_str());
  XBLK_CHECK(ring.finding().empty(), "the backend keeps its promises to any frontend");
}

}  // namespace
}  // namespace xblk::scenarios

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  xblk::scenarios::run({data, size});
  return 0;
}
