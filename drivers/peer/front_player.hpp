// Executes a FrontScript: a ScriptedFront, its data pages with their grants, and what must never happen to its memory.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "drivers/base/check.hpp"
#include "drivers/blkif/request.hpp"
#include "drivers/hypervisor/grant_entry.hpp"
#include "drivers/peer/front_script.hpp"
#include "drivers/peer/scripted_front.hpp"

namespace xblk::peer {

template <class P>
class FrontPlayer {
 public:
  static constexpr std::uint32_t kPages = 8;

  // `entries` is the frontend's grant table, which only a guest of this process shows. `turn` lets the backend run.
  FrontPlayer(ScriptedFront<P>& front, std::span<hypervisor::GrantEntry> entries, std::function<void()> turn)
      : front_(front),
        entries_(entries),
        turn_(std::move(turn)),
        memory_(front.allocate(2 * kPages + 1)),
        indirect_page_(front.allocate(1)),
        indirect_gref_(front.grant(indirect_page_, 0)) {
    std::memset(memory_.address, kCanary, std::size_t{memory_.pages} * kPageSize);
    for (std::uint32_t page = 0; page < kPages; ++page) grefs_.push_back(front_.grant(memory_, block_page(page)));
    granted_.fill(true);
  }

  void play(const FrontScript& script) {
    for (const auto& operation : script) play(operation);
  }
  void play(const front::Operation& operation) {
    std::visit([this](const auto& one) { this->execute(one); }, operation);
  }

  // Each second page of the block was granted, those between never: nobody may write there.
  [[nodiscard]] std::byte* page(std::uint32_t number) {
    return memory_.address + std::size_t{block_page(number)} * kPageSize;
  }
  [[nodiscard]] bool pages_between_are_untouched() const {
    // Each byte as the one before it, and the first as it was written.
    const auto untouched = [](const std::byte* bytes) {
      return bytes[0] == std::byte{kCanary} && std::memcmp(bytes, bytes + 1, kPageSize - 1) == 0;
    };
    for (std::uint32_t between = 0; between < memory_.pages; between += 2) {
      if (!untouched(memory_.address + std::size_t{between} * kPageSize)) return false;
    }
    return true;
  }
  // Grants are as at the start: a request that is well-formed must succeed.
  [[nodiscard]] bool grants_are_good() const { return grants_are_good_; }
  [[nodiscard]] bool is_data_page(GrantRef gref) const {
    return std::find(grefs_.begin(), grefs_.end(), gref) != grefs_.end();
  }
  // Where the segments of indirect requests travel.
  [[nodiscard]] GrantRef indirect_gref() const { return indirect_gref_; }
  [[nodiscard]] std::span<std::byte, kPageSize> indirect_page() {
    return std::span<std::byte, kPageSize>(indirect_page_.address, kPageSize);
  }
  // What a request's parts are on the wire.
  [[nodiscard]] std::vector<blkif::Segment> segments(const std::vector<Part>& parts) const {
    std::vector<blkif::Segment> segments;
    for (const Part& part : parts) {
      const GrantRef gref = part.page < kPages ? grefs_[part.page] : kNoSuchGrant;
      segments.push_back({gref, part.first, part.last});
    }
    return segments;
  }

 private:
  static constexpr std::uint8_t kCanary = 0xa5;
  static constexpr GrantRef kNoSuchGrant{0x7fffffff};

  static constexpr std::uint32_t block_page(std::uint32_t page) { return 2 * page + 1; }

  void execute(const front::Put& put) {
    blkif::Request request;
    request.op = put.op;
    request.id = put.id;
    request.sector = put.sector;
    request.discard_sectors = put.discard;
    const auto parts = segments(put.parts);
    request.segment_count = static_cast<std::uint16_t>(parts.size());
    if (put.indirect) {
      alignas(8) std::array<std::byte, kPageSize> page{};
      blkif::encode_indirect_page(parts, page);
      platform::copy_to_shared(indirect_page_.address, page.data(), page.size());
      request.indirect = true;
      request.indirect_page_count = static_cast<std::uint8_t>(blkif::indirect_pages(parts.size()));
      request.indirect_grefs[0] = indirect_gref_;
    }
    front_.put(request, parts);
  }
  void execute(const front::PutBytes& put) { front_.put(put.raw); }
  void execute(const front::Patch& patch) {
    const std::size_t offset = patch.offset % blkif::request_slot_size(front_.abi());
    platform::copy_to_shared(front_.slot(front_.produced() - patch.slots_back) + offset, &patch.value, 1);
  }
  void execute(const front::Push&) { front_.push(); }
  void execute(const front::SetIndex& set) {
    peer::execute(set, front_.indexes());
    front_.notify();
  }
  void execute(const front::Notify& notify) {
    for (unsigned i = 0; i < notify.times; ++i) front_.notify();
  }
  void execute(const front::Turn& turn) {
    for (unsigned i = 0; i < turn.rounds; ++i) turn_();
  }

  void execute(const front::EndGrant& end) {
    grants_are_good_ = false;
    const auto* header = header_of(end.page);
    const bool torn = header != nullptr && *header == 0;
    if (granted_[end.page] && !torn) granted_[end.page] = !front_.end_access(grefs_[end.page]);
  }
  void execute(const front::Tear& tear) {
    grants_are_good_ = false;
    if (auto* header = header_of(tear.page)) std::atomic_ref(*header).store(0, std::memory_order_relaxed);
  }
  void execute(const front::Regrant& regrant) {
    grants_are_good_ = false;
    if (header_of(regrant.page) == nullptr) return;
    const FrameNumber frame(memory_.first_frame.value() + block_page(regrant.to));
    hypervisor::publish_grant(entries_[grefs_[regrant.page].value()], kDom0, frame, regrant.access);
  }
  // Null: the reference was given back, so it may be somebody else's by now; or the table is out of reach.
  std::uint32_t* header_of(std::uint32_t page) {
    if (!granted_[page] || entries_.empty()) return nullptr;
    return &entries_[grefs_[page].value()].header;
  }

  ScriptedFront<P>& front_;
  std::span<hypervisor::GrantEntry> entries_;
  std::function<void()> turn_;
  platform::PageBlock memory_;
  std::vector<GrantRef> grefs_;
  std::array<bool, kPages> granted_{};
  bool grants_are_good_ = true;
  platform::PageBlock indirect_page_;
  GrantRef indirect_gref_;
};

}  // namespace xblk::peer
