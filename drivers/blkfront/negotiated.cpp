#include "drivers/blkfront/negotiated.hpp"

#include <algorithm>
#include <string>

#include "drivers/blkif/wire.hpp"

namespace xblk::blkfront {
namespace {

template <class E>
std::string word(std::string_view policy, E value) {
  return blkif::print_policy_value(*blkif::find_policy(policy), static_cast<std::uint64_t>(value));
}

blkif::Ordering ordering(const Negotiated& n) {
  if (n.flush) return n.barrier ? blkif::Ordering::both : blkif::Ordering::flush;
  return n.barrier ? blkif::Ordering::barrier : blkif::Ordering::none;
}

blkif::Discard discard(const Negotiated& n) {
  if (!n.discard) return blkif::Discard::off;
  return n.discard_secure ? blkif::Discard::secure : blkif::Discard::on;
}

}  // namespace

DeviceInfo agree(const blkif::FrontPolicy& policy, const blkif::FrontendOffer& offer,
                 const blkif::BackendOffer& backend) {
  DeviceInfo info;
  info.capacity = backend.sectors;
  info.sector_size = backend.sector_size;
  info.readonly = (backend.info & blkif::kVdiskReadonly) != 0;
  Negotiated& n = info.negotiated;
  n.persistent = offer.persistent && backend.persistent;
  n.queues = static_cast<std::uint16_t>(offer.queues.size());
  n.ring_page_order = offer.ring_page_order;
  const auto indirect = std::min<std::uint32_t>(policy.indirect_segments, backend.limits.indirect_segments_max);
  n.indirect_segments_max = indirect > blkif::kDirectSegmentsMax ? indirect : 0;  // up to 11 a direct request does
  n.flush = backend.flush;
  n.barrier = backend.barrier;
  n.discard = backend.discard && !info.readonly;
  n.discard_secure = n.discard && backend.discard_secure;
  n.discard_granularity = backend.discard_granularity;
  n.discard_alignment = backend.discard_alignment;
  return info;
}

blkif::PolicyMap negotiated_keys(const blkif::FrontPolicy& policy, const Negotiated& n) {
  blkif::PolicyMap keys = blkif::to_keys(policy);
  keys["persistent"] = n.persistent ? "1" : "0";
  keys["queues"] = std::to_string(n.queues);
  keys["ring-page-order"] = std::to_string(n.ring_page_order);
  keys["indirect-segments"] = std::to_string(n.indirect_segments_max);
  keys["protocol"] = blkif::protocol_name(blkif::kNativeAbi);
  keys["ordering"] = word("ordering", ordering(n));
  keys["discard"] = word("discard", discard(n));
  return keys;
}

}  // namespace xblk::blkfront
