// A store behind a link of limited bandwidth with a round trip: stands for an iSCSI disk. Data is real, and the inner
// store's; only its completions come as late as the link would bring them. All queues share the one link.
#pragma once

#include <memory>

#include "drivers/store/store.hpp"

namespace xblk::store {

std::unique_ptr<Store> make_throttled_store(Link link, std::unique_ptr<Store> inner);

}  // namespace xblk::store
