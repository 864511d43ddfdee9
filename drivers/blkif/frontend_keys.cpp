#include <charconv>
#include <optional>
#include <set>

#include <fmt/format.h>

#include "drivers/base/check.hpp"
#include "drivers/blkif/key_reader.hpp"
#include "drivers/blkif/negotiation.hpp"

namespace xblk::blkif {
namespace {

constexpr std::string_view kQueueDirectory = "queue-";

// One connect sees each reference and each port once; twice means a lost update or an attack on our bookkeeping.
struct Seen {
  std::set<GrantRef> refs;
  std::set<EventPort> ports;
};

Result<std::string> required(const KeyMap& keys, const std::string& key) {
  const auto found = keys.find(key);
  if (found == keys.end()) return fail(ENOENT, fmt::format("{}: missing; the frontend must write it", key));
  return found->second;
}

Result<std::uint32_t> required_u32(const KeyMap& keys, const std::string& key, std::uint32_t min) {
  const auto text = required(keys, key);
  if (!text) return tl::make_unexpected(text.error());
  const auto value = keys::parse_bounded(key, *text, min, UINT32_MAX);
  if (!value) return tl::make_unexpected(value.error());
  return static_cast<std::uint32_t>(*value);
}

tl::unexpected<Error> stale(const std::string& one, const std::string& other) {
  return fail(
      EINVAL,
      fmt::format("{} and {}: both present, one is of an earlier connection; the frontend must delete it", one, other));
}

Result<QueueOffer> parse_queue(const KeyMap& keys, const std::string& prefix, std::uint32_t pages, Seen& seen) {
  const std::string sole = prefix + std::string(keys::kRingRef);
  const std::string first = prefix + keys::ring_ref_key(0, 2);
  if (keys.contains(sole) && keys.contains(first)) return stale(sole, first);
  QueueOffer queue;
  for (std::uint32_t page = 0; page < pages; ++page) {
    std::string key = prefix + keys::ring_ref_key(page, pages);
    // A one-page ring of a frontend that always numbers its pages (FreeBSD, XenServer).
    if (pages == 1 && keys.contains(first)) key = first;
    const auto ref = required_u32(keys, key, 0);
    if (!ref) return tl::make_unexpected(ref.error());
    if (!seen.refs.insert(GrantRef(*ref)).second) {
      return fail(EINVAL, fmt::format("{} = {}: the frontend gave this reference twice", key, *ref));
    }
    queue.ring_refs.emplace_back(*ref);
  }
  const std::string key = prefix + std::string(keys::kEventChannel);
  const auto port = required_u32(keys, key, 1);
  if (!port) return tl::make_unexpected(port.error());
  if (!seen.ports.insert(EventPort(*port)).second) {
    return fail(EINVAL, fmt::format("{} = {}: the frontend gave this port twice", key, *port));
  }
  queue.event_channel = EventPort(*port);
  return queue;
}

// The number N of "queue-N" or "queue-N/...".
std::optional<std::uint32_t> queue_of(std::string_view key) {
  if (!key.starts_with(kQueueDirectory)) return std::nullopt;
  key.remove_prefix(kQueueDirectory.size());
  const auto value = parse_decimal(key.substr(0, key.find('/')));
  if (!value || *value > UINT32_MAX) return std::nullopt;
  return static_cast<std::uint32_t>(*value);
}

bool is_ring_ref(std::string_view name) {
  if (!name.starts_with(keys::kRingRef)) return false;
  name.remove_prefix(keys::kRingRef.size());
  return name.empty() || parse_decimal(name).has_value();
}

}  // namespace

Result<FrontendOffer> parse_frontend_keys(const KeyMap& keys, const BackendLimits& limits) {
  KeyReader reader(keys);
  FrontendOffer offer;
  const auto abi = parse_protocol(reader.text(keys::kProtocol));
  if (!abi) return tl::make_unexpected(abi.error());
  offer.abi = *abi;
  offer.persistent = reader.boolean(keys::kFeaturePersistent);
  offer.ring_page_order =
      reader.u32(keys::kRingPageOrder, 0, 0, std::min(limits.ring_page_order_max, kRingPageOrderMax));
  const auto queues = reader.u32(keys::kNumQueues, 1, 1, limits.queues_max);
  if (auto status = reader.status(); !status) return tl::make_unexpected(status.error());

  // blkif.h: with several queues the top-level keys must not exist. If they do, they may as well be those of a
  // one-queue frontend that did not delete its predecessor's multi-queue-num-queues.
  for (const auto& key : {std::string(keys::kRingRef), keys::ring_ref_key(0, 2), std::string(keys::kEventChannel)}) {
    if (queues > 1 && keys.contains(key)) return stale(key, std::string(keys::kNumQueues));
  }
  Seen seen;
  for (std::uint32_t i = 0; i < queues; ++i) {
    const std::string prefix = queues == 1 ? "" : keys::queue_prefix(i);
    auto queue = parse_queue(keys, prefix, 1u << offer.ring_page_order, seen);
    if (!queue) return tl::make_unexpected(queue.error());
    offer.queues.push_back(*std::move(queue));
  }
  return offer;
}

KeyList frontend_keys(const FrontendOffer& offer) {
  XBLK_CHECK(!offer.queues.empty() && offer.queues.size() <= kQueuesMax, "a frontend has 1 to 64 queues");
  XBLK_CHECK(offer.ring_page_order <= kRingPageOrderMax, "a ring has up to 16 pages");
  const std::uint32_t pages = 1u << offer.ring_page_order;
  KeyList list;
  list.emplace_back(keys::kProtocol, protocol_name(offer.abi));
  list.emplace_back(keys::kFeaturePersistent, offer.persistent ? "1" : "0");
  // Left out at their defaults: a backend without the feature must find the keys of a plain frontend.
  if (pages > 1) list.emplace_back(keys::kRingPageOrder, std::to_string(offer.ring_page_order));
  if (offer.queues.size() > 1) list.emplace_back(keys::kNumQueues, std::to_string(offer.queues.size()));
  for (std::uint32_t i = 0; i < offer.queues.size(); ++i) {
    const QueueOffer& queue = offer.queues[i];
    XBLK_CHECK(queue.ring_refs.size() == pages, "one reference for each page of the ring");
    const std::string prefix = offer.queues.size() == 1 ? "" : keys::queue_prefix(i);
    for (std::uint32_t page = 0; page < pages; ++page) {
      list.emplace_back(prefix + keys::ring_ref_key(page, pages), std::to_string(queue.ring_refs[page].value()));
    }
    list.emplace_back(prefix + std::string(keys::kEventChannel), std::to_string(queue.event_channel.value()));
  }
  return list;
}

std::vector<std::string> stale_frontend_keys(const FrontendOffer& offer, const KeyMap& existing) {
  std::set<std::string, std::less<>> written;
  for (auto& [key, value] : frontend_keys(offer)) written.insert(std::move(key));
  const std::uint32_t directories = offer.queues.size() > 1 ? static_cast<std::uint32_t>(offer.queues.size()) : 0;
  std::set<std::string> stale_keys;
  for (const auto& [key, value] : existing) {
    if (written.contains(key)) continue;
    const auto queue = queue_of(key);
    if (queue && *queue >= directories) {
      stale_keys.insert(key.substr(0, key.find('/')));
      continue;
    }
    const std::string_view name = std::string_view(key).substr(queue ? key.find('/') + 1 : 0);
    const bool transport = name == keys::kEventChannel || is_ring_ref(name);
    if (transport || key == keys::kRingPageOrder || key == keys::kNumQueues) stale_keys.insert(key);
  }
  return {stale_keys.begin(), stale_keys.end()};
}

}  // namespace xblk::blkif
