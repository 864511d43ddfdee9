// The receiving end of one event channel: what is rung, awaited, and masked.
//
// The primary template builds it from an Env's Doorbell and serves environments whose primitives run one at a time.
// Real time needs more, because there a hostile process holds one end: see real_bell.hpp.
#pragma once

#include <utility>

#include "drivers/base/result.hpp"

namespace xblk::hypervisor {

template <class Env>
class EventBell {
 public:
  static Result<EventBell> create() {
    auto doorbell = Env::Doorbell::create();
    if (!doorbell) return tl::unexpected(doorbell.error());
    EventBell bell;
    bell.doorbell_ = std::move(*doorbell);
    return bell;
  }

  void ring() {
    if (masked_) {
      held_ = true;
    } else {
      doorbell_.ring();
    }
  }
  bool consume() {
    const bool held = std::exchange(held_, false);
    return doorbell_.consume() || held;
  }
  void mask() {
    if (!std::exchange(masked_, true)) held_ = doorbell_.consume();
  }
  void unmask() {
    masked_ = false;
    if (std::exchange(held_, false)) doorbell_.ring();
  }
  [[nodiscard]] typename Env::Waitable waitable() { return doorbell_.waitable(); }

 private:
  EventBell() = default;
  typename Env::Doorbell doorbell_;
  bool masked_ = false;
  bool held_ = false;  // rung while masked
};

}  // namespace xblk::hypervisor
