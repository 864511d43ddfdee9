#include <algorithm>
#include <bit>

#include "drivers/blkif/key_reader.hpp"
#include "drivers/blkif/negotiation.hpp"
#include "drivers/blkif/request.hpp"

namespace xblk::blkif {
namespace {

const char* digit(bool value) {
  return value ? "1" : "0";
}

void read_limits(KeyReader& reader, BackendLimits& limits) {
  // A backend may offer more than we can use: any 32-bit value is right, and cut here, before anything shifts by it.
  limits.queues_max = std::min(reader.u32(keys::kMaxQueues, 1, 1, UINT32_MAX), kQueuesMax);
  limits.ring_page_order_max = std::min(reader.u32(keys::kMaxRingPageOrder, 0, 0, UINT32_MAX), kRingPageOrderMax);
  limits.indirect_segments_max = static_cast<std::uint16_t>(
      std::min<std::uint32_t>(reader.u32(keys::kMaxIndirectSegments, 0, 0, UINT32_MAX), kIndirectSegmentsMax));
}

void read_sizes(KeyReader& reader, BackendOffer& offer) {
  for (const auto key : {keys::kSectors, keys::kSectorSize, keys::kInfo}) reader.require(key);
  offer.sectors = Sectors(reader.u64(keys::kSectors, 0, 1, kCapacityMaxSectors));
  offer.info = reader.u32(keys::kInfo, 0, 0, UINT32_MAX);
  offer.sector_size = reader.u32(keys::kSectorSize, kSectorSize, kSectorSize, kSectorSizeMax);
  if (!std::has_single_bit(offer.sector_size)) reader.refuse(keys::kSectorSize, "must be a power of two");
  offer.physical_sector_size = reader.u32(keys::kPhysicalSectorSize, offer.sector_size, kSectorSize, UINT32_MAX);
  if (offer.physical_sector_size % offer.sector_size != 0) {
    reader.refuse(keys::kPhysicalSectorSize, "must be a multiple of sector-size");
  }
  if (to_bytes(offer.sectors).value() % offer.sector_size != 0) {
    reader.refuse(keys::kSectors, "must be a multiple of sector-size, in 512-byte units");
  }
}

void read_discard(KeyReader& reader, BackendOffer& offer) {
  offer.discard = reader.boolean(keys::kFeatureDiscard);
  offer.discard_granularity = offer.sector_size;
  if (!offer.discard) return;  // Linux blkback writes the rest only if it offers discard
  offer.discard_secure = reader.boolean(keys::kDiscardSecure);
  offer.discard_alignment = reader.u32(keys::kDiscardAlignment, 0, 0, UINT32_MAX);
  // A granularity of 0 would be divided by.
  offer.discard_granularity = reader.u32(keys::kDiscardGranularity, offer.sector_size, kSectorSize, UINT32_MAX);
  if (offer.discard_granularity % offer.sector_size != 0) {
    reader.refuse(keys::kDiscardGranularity, "must be a multiple of sector-size");
  }
}

}  // namespace

Result<BackendLimits> parse_backend_limits(const KeyMap& keys) {
  KeyReader reader(keys);
  BackendLimits limits;
  read_limits(reader, limits);
  if (auto status = reader.status(); !status) return tl::make_unexpected(status.error());
  return limits;
}

Result<BackendOffer> parse_backend_keys(const KeyMap& keys) {
  KeyReader reader(keys);
  BackendOffer offer;
  read_limits(reader, offer.limits);
  read_sizes(reader, offer);
  offer.persistent = reader.boolean(keys::kFeaturePersistent);
  offer.flush = reader.boolean(keys::kFeatureFlushCache);
  offer.barrier = reader.boolean(keys::kFeatureBarrier);
  read_discard(reader, offer);
  if (auto status = reader.status(); !status) return tl::make_unexpected(status.error());
  return offer;
}

KeyList backend_limit_keys(const BackendLimits& limits) {
  KeyList list;
  list.emplace_back(keys::kMaxQueues, std::to_string(limits.queues_max));
  list.emplace_back(keys::kMaxRingPageOrder, std::to_string(limits.ring_page_order_max));
  // blkif.h: a backend without indirect requests must not create the key.
  if (limits.indirect_segments_max != 0) {
    list.emplace_back(keys::kMaxIndirectSegments, std::to_string(limits.indirect_segments_max));
  }
  return list;
}

KeyList backend_property_keys(const BackendOffer& offer) {
  KeyList list;
  list.emplace_back(keys::kFeatureFlushCache, digit(offer.flush));
  list.emplace_back(keys::kFeatureBarrier, digit(offer.barrier));
  list.emplace_back(keys::kFeatureDiscard, digit(offer.discard));
  if (offer.discard) {
    list.emplace_back(keys::kDiscardGranularity, std::to_string(offer.discard_granularity));
    list.emplace_back(keys::kDiscardAlignment, std::to_string(offer.discard_alignment));
    list.emplace_back(keys::kDiscardSecure, digit(offer.discard_secure));
  }
  list.emplace_back(keys::kFeaturePersistent, digit(offer.persistent));
  list.emplace_back(keys::kSectors, std::to_string(offer.sectors.value()));
  list.emplace_back(keys::kInfo, std::to_string(offer.info));
  list.emplace_back(keys::kSectorSize, std::to_string(offer.sector_size));
  list.emplace_back(keys::kPhysicalSectorSize, std::to_string(offer.physical_sector_size));
  return list;
}

}  // namespace xblk::blkif
