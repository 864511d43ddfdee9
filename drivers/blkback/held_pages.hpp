// What one request holds of its frontend's pages. Lives in the ring's request slots, so that its vectors grow once.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "drivers/base/units.hpp"
#include "drivers/blkback/persistent_index.hpp"
#include "drivers/blkif/wire.hpp"
#include "drivers/platform/concepts.hpp"
#include "drivers/store/store.hpp"

namespace xblk::blkback {

class HeldPages {
 public:
  HeldPages() {
    holds_.reserve(blkif::kDirectSegmentsMax);
    pieces_.reserve(blkif::kDirectSegmentsMax);
  }
  // One per segment; each lies in a page of its own.
  [[nodiscard]] std::span<const store::Piece> pieces() const { return pieces_; }
  [[nodiscard]] bool empty() const { return holds_.empty(); }

 private:
  template <platform::Platform P>
  friend class GrantedPages;
  // How the page of the piece with the same index is held.
  struct Hold {
    enum class Kind : std::uint8_t { none, pinned, mapped, copied };
    Kind kind = Kind::none;
    GrantRef gref{};
    MapHandle handle{};                // mapped
    PersistentGrant* grant = nullptr;  // pinned
  };
  std::vector<Hold> holds_;
  std::vector<store::Piece> pieces_;
  bool any_copied_ = false;
};

}  // namespace xblk::blkback
