#include "drivers/xen/shared_pages.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "drivers/base/check.hpp"

namespace xblk::xen {

platform::PageBlock SharedPages::add(std::byte* address, DomId peer, std::span<const std::uint32_t> grefs) {
  const auto count = static_cast<std::uint32_t>(grefs.size());
  const std::uint32_t first = free_frames(count);
  if (frames_.size() < first + count) frames_.resize(first + count);
  for (std::uint32_t i = 0; i < count; ++i) frames_[first + i] = {GrantRef(grefs[i]), peer, true};
  const platform::PageBlock block{address, FrameNumber(first), count};
  const auto place = std::upper_bound(blocks_.begin(), blocks_.end(), address,
                                      [](const std::byte* a, const auto& b) { return a < b.address; });
  blocks_.insert(place, block);
  return block;
}

void SharedPages::remove(const platform::PageBlock& block) {
  const auto found = std::find_if(blocks_.begin(), blocks_.end(), [&](const auto& b) {
    return b.address == block.address && b.pages == block.pages && b.first_frame == block.first_frame;
  });
  XBLK_CHECK(found != blocks_.end(), "a block is freed once, as it was allocated");
  for (std::uint32_t i = 0; i < block.pages; ++i) frames_[block.first_frame.value() + i] = {};
  blocks_.erase(found);
}

std::optional<FrameNumber> SharedPages::frame_of(const std::byte* address) const {
  const auto after = std::upper_bound(blocks_.begin(), blocks_.end(), address,
                                      [](const std::byte* a, const auto& b) { return a < b.address; });
  if (after == blocks_.begin()) return std::nullopt;
  const platform::PageBlock& block = *std::prev(after);
  const auto page = static_cast<std::size_t>(address - block.address) / kPageSize;
  if (page >= block.pages) return std::nullopt;
  return FrameNumber(block.first_frame.value() + static_cast<std::uint32_t>(page));
}

Result<GrantRef> SharedPages::gref_of(DomId peer, FrameNumber frame) const {
  if (frame.value() >= frames_.size() || !frames_[frame.value()].used) {
    return fail(EINVAL, fmt::format("grant frame {}: it is not allocated", frame.value()));
  }
  const Page& page = frames_[frame.value()];
  if (page.peer != peer) {
    return fail(EINVAL, fmt::format("grant frame {} to domain {}: gntalloc shared it with domain {} for good; allocate "
                                    "pages for domain {}",
                                    frame.value(), peer.value(), page.peer.value(), peer.value()));
  }
  return page.gref;
}

std::size_t SharedPages::pages() const {
  return static_cast<std::size_t>(std::count_if(frames_.begin(), frames_.end(), [](const Page& p) { return p.used; }));
}

std::uint32_t SharedPages::free_frames(std::uint32_t count) const {
  std::uint32_t run = 0;
  for (std::uint32_t i = 0; i < frames_.size(); ++i) {
    run = frames_[i].used ? 0 : run + 1;
    if (run == count) return i + 1 - count;
  }
  return static_cast<std::uint32_t>(frames_.size()) - run;
}

}  // namespace xblk::xen
