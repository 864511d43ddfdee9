// What either end can do to its peer without a request or a response: any value in one of the four words that both ends
// share, and events.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "drivers/platform/barriers.hpp"
#include "drivers/platform/shared_ring.hpp"

namespace xblk::peer {

enum class Index : std::uint8_t { req_prod, req_event, rsp_prod, rsp_event };

// And an event.
struct SetIndex {
  Index index = Index::req_prod;
  std::uint32_t value = 0;
};

struct Notify {
  unsigned times = 1;
};

inline void execute(const SetIndex& set, platform::SharedIndexes& indexes) {
  const std::array<std::uint32_t*, 4> words = {&indexes.req_prod, &indexes.req_event, &indexes.rsp_prod,
                                               &indexes.rsp_event};
  platform::store_release(*words[static_cast<std::size_t>(set.index)], set.value);
}

}  // namespace xblk::peer
