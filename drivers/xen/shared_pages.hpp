// Which of our memory is shared, with whom, and under which grant references: bookkeeping without Xen.
//
// Lookups are on the path of every segment: a binary search over the blocks (a device has some dozens) by address, and
// an index by frame. Not thread-safe; XenFront locks around it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "drivers/base/result.hpp"
#include "drivers/base/units.hpp"
#include "drivers/platform/grants.hpp"

namespace xblk::xen {

class SharedPages {
 public:
  // A block that was shared with `peer` under `grefs`, one per page.
  platform::PageBlock add(std::byte* address, DomId peer, std::span<const std::uint32_t> grefs);
  void remove(const platform::PageBlock& block);

  [[nodiscard]] std::optional<FrameNumber> frame_of(const std::byte* address) const;
  // EINVAL: not a frame of ours, or not shared with `peer`.
  [[nodiscard]] Result<GrantRef> gref_of(DomId peer, FrameNumber frame) const;

  [[nodiscard]] std::size_t pages() const;

 private:
  struct Page {  // of one frame
    GrantRef gref{};
    DomId peer{};
    bool used = false;
  };
  // The lowest run of unused frames, so that frame numbers stay as few as there were pages at once.
  [[nodiscard]] std::uint32_t free_frames(std::uint32_t count) const;

  std::vector<Page> frames_;
  std::vector<platform::PageBlock> blocks_;  // by address
};

}  // namespace xblk::xen
