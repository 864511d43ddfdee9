#include "agent/plan/capacity.hpp"

#include <algorithm>
#include <charconv>
#include <map>
#include <set>
#include <string_view>

#include "drivers/base/check.hpp"
#include "drivers/blkif/keys.hpp"
#include "drivers/blkif/negotiation.hpp"
#include "drivers/blkif/policy.hpp"
#include "drivers/blkif/ring_layout.hpp"

namespace xblk::plan {
namespace {

constexpr std::uint64_t kDirectSegments = 11;            // BLKIF_MAX_SEGMENTS_PER_REQUEST
constexpr std::uint64_t kSegmentsPerIndirectPage = 512;  // of 8 bytes in a page of 4 KiB

// Mappings of the host process that are no grants: libraries, stacks, heaps, guests' memories, statistics files.
constexpr std::uint64_t kMappingsOfTheHost = 4096;

// Descriptors of the host process: its own; of a guest its socket, memory and grant table, its device's files; of a
// ring both ends' event channels and what wakes its worker. As counted in /proc; cli_test.py holds them to a real host.
constexpr std::uint64_t kFilesOfTheHost = 24;
constexpr std::uint64_t kFilesOfAGuest = 8;
constexpr std::uint64_t kFilesOfARing = 4;
constexpr std::uint64_t kFilesOfAFileQueue = 2;  // its ring, and its own open file
constexpr std::uint64_t kFilesOfALink = 2;       // a timer, and an epoll over it and what is behind

// xenstored's quotas for a guest (its options -E, -W, -S, -t and -Q transaction-nodes), by default.
constexpr std::uint64_t kNodesMax = 1000;
constexpr std::uint64_t kWatchesMax = 128;
constexpr std::uint64_t kNodeBytesMax = 2048;
constexpr std::uint64_t kTransactionsMax = 10;
constexpr std::uint64_t kTransactionNodesMax = 1024;

constexpr std::uint64_t kWatches = 2;       // of a frontend: the backend's state, and its own reconnect counter
constexpr std::uint64_t kTransactions = 1;  // at a time
constexpr std::uint64_t kNodeHeader = 20;   // of a node's record: counts, generation
constexpr std::uint64_t kNodePermissions = 2 * 8;

std::uint64_t number(const Policy& policy, const std::string& key) {
  const auto found = policy.find(key);
  XBLK_CHECK(found != policy.end(), "a point's policies are complete");
  std::uint64_t value = 0;
  std::from_chars(found->second.data(), found->second.data() + found->second.size(), value);
  return value;
}

// What both ends can have in force is the smaller of their values.
std::uint64_t negotiated(const Point& point, const std::string& key) {
  return std::min(number(point.front, key), number(point.back, key));
}

struct Ring {
  std::uint64_t pages = 0;
  std::uint64_t data_grants = 0;      // slots x segments
  std::uint64_t indirect_grants = 0;  // pages of indirect descriptors

  [[nodiscard]] std::uint64_t request_grants() const { return data_grants + indirect_grants; }
};

// Grants per ring = slots x (segments + ceil(segments / 512)); 32 x (32 + 1) = 1056 is blkback's default cap.
Ring ring_of(const Point& point) {
  Ring ring;
  ring.pages = std::uint64_t{1} << negotiated(point, "ring-page-order");
  const std::uint64_t slots = blkif::ring_slots(static_cast<std::uint32_t>(ring.pages), blkif::kNativeAbi);
  const std::uint64_t indirect = negotiated(point, "indirect-segments");
  const bool uses_indirect = indirect > kDirectSegments;
  ring.data_grants = slots * (uses_indirect ? indirect : kDirectSegments);
  if (uses_indirect) {
    ring.indirect_grants = slots * ((indirect + kSegmentsPerIndirectPage - 1) / kSegmentsPerIndirectPage);
  }
  return ring;
}

std::uint64_t guest_grants_of(const Point& point) {
  const Ring ring = ring_of(point);
  return negotiated(point, "queues") * (ring.pages + ring.request_grants());
}

// Names of everything below a frontend's directory while it is connected: the toolstack's keys, the policies, what the
// frontend offers, and the result.
std::vector<std::string> frontend_paths(const Point& point, const Ring& ring, std::uint64_t queues) {
  namespace keys = blkif::keys;
  std::vector<std::string> paths = {
      std::string(keys::kBackend),      std::string(keys::kBackendId),    std::string(keys::kVirtualDevice),
      std::string(keys::kState),        std::string(keys::kStatistics),   std::string(keys::kPolicyReconnect),
      keys::negotiated_key("protocol"), keys::negotiated_key("ordering"), keys::negotiated_key("discard")};
  for (const auto& [name, unused] : point.front) {
    paths.push_back(keys::policy_key(name));
    paths.push_back(keys::negotiated_key(name));
  }
  blkif::FrontendOffer offer;
  offer.ring_page_order = static_cast<std::uint32_t>(negotiated(point, "ring-page-order"));
  for (std::uint64_t q = 0; q < queues; ++q) {
    offer.queues.push_back({std::vector<GrantRef>(ring.pages, GrantRef(kGrantTableEntries)), EventPort(1)});
  }
  for (const auto& [key, unused] : blkif::frontend_keys(offer)) paths.push_back(key);
  return paths;
}

// Every node, directories too, and the bytes of the largest one: a directory holds the names of its children.
void count_nodes(const std::vector<std::string>& paths, Capacity& out) {
  std::set<std::string> nodes = {""};
  std::map<std::string, std::uint64_t> bytes;
  for (const std::string& path : paths) {
    for (std::size_t end = path.find('/');; end = path.find('/', end + 1)) {
      const std::string node = path.substr(0, end);
      if (nodes.insert(node).second) {
        const std::size_t slash = node.rfind('/');
        const std::string parent = slash == std::string::npos ? "" : node.substr(0, slash);
        bytes[parent] += node.size() - (slash == std::string::npos ? 0 : slash + 1) + 1;
      }
      if (end == std::string::npos) break;
    }
  }
  out.guest_nodes = nodes.size();
  for (const auto& [node, children] : bytes) {
    out.largest_node = std::max(out.largest_node, kNodeHeader + kNodePermissions + children);
  }
}

std::uint64_t files_of_a_queue(const StoreSpec& store) {
  const std::uint64_t file = store.kind == StoreSpec::Kind::file ? kFilesOfAFileQueue : 0;
  return file + kFilesOfALink * store.links.size();
}

}  // namespace

Bytes guest_memory_of(const Point& point) {
  return Bytes(guest_grants_of(point) * kPageSize);
}

Capacity capacity_of(const Point& point, const StoreSpec& store) {
  const Ring ring = ring_of(point);
  const std::uint64_t queues = negotiated(point, "queues");
  const std::uint64_t per_ring = ring.request_grants();
  const bool persistent = negotiated(point, "persistent") == 1;
  const bool copies = !persistent && point.back.at("data-path") == "copy";
  // With persistent grants the cache holds up to its cap, and a full ring beyond the cap is mapped on top of it.
  const std::uint64_t cap = number(point.back, "max-persistent-grants");
  const std::uint64_t beyond_cap = per_ring > cap ? per_ring : 0;
  const std::uint64_t mapped = persistent ? std::min(cap, per_ring) + beyond_cap : copies ? 0 : per_ring;

  Capacity out;
  out.guest_grants = guest_grants_of(point);
  out.guest_memory = guest_memory_of(point);
  out.host_mappings = point.guests * queues * (ring.pages + mapped);
  count_nodes(frontend_paths(point, ring, queues), out);
  out.host_open_files =
      kFilesOfTheHost + point.guests * (kFilesOfAGuest + queues * (kFilesOfARing + files_of_a_queue(store)));
  return out;
}

std::vector<Limit> limits_of(const Capacity& capacity, const host::Limits& machine) {
  const std::string fewer_queues = "lower queues or ring-page-order";
  return {
      {"vm.max_map_count", machine.max_map_count, capacity.host_mappings + kMappingsOfTheHost,
       "mappings of the host process, for all guests' grants",
       "beyond it pages are copied for each request; raise it with 'sysctl vm.max_map_count=" +
           std::to_string(2 * (capacity.host_mappings + kMappingsOfTheHost)) + "'"},
      {"max_grant_frames", kGrantTableEntries, capacity.guest_grants, "grant entries of a guest, 512 a frame",
       "beyond it I/Os wait for each other's grants; lower queues, ring-page-order or indirect-segments"},
      {"xenstored entries", kNodesMax, capacity.guest_nodes, "nodes that a guest owns (xenstored -E)",
       "beyond it the frontend cannot publish its rings and stays closed; " + fewer_queues},
      {"xenstored transaction-nodes", kTransactionNodesMax, capacity.guest_nodes,
       "nodes that a transaction of a guest touches (xenstored -Q)",
       "beyond it the frontend cannot publish its rings and stays closed; " + fewer_queues},
      {"xenstored entry-size", kNodeBytesMax, capacity.largest_node,
       "bytes of a node with the names below it (xenstored -S)",
       "beyond it the frontend cannot publish its rings and stays closed; lower queues"},
      {"xenstored watches", kWatchesMax, kWatches, "watches of a guest (xenstored -W)",
       "beyond it the frontend cannot see its backend"},
      {"xenstored transactions", kTransactionsMax, kTransactions, "open transactions of a guest (xenstored -t)",
       "beyond it the frontend has to try again"},
      {"RLIMIT_NOFILE", machine.open_files, capacity.host_open_files, "open files of the host process",
       "beyond it guests are refused; raise the hard limit with 'ulimit -Hn' or in limits.conf"},
  };
}

std::vector<WorstLimit> worst_limits(const std::vector<Point>& points, const StoreSpec& store,
                                     const host::Limits& machine) {
  std::vector<WorstLimit> worst;
  for (const Point& point : points) {
    const auto limits = limits_of(capacity_of(point, store), machine);
    for (std::size_t i = 0; i < limits.size(); ++i) {
      if (i == worst.size()) {
        worst.push_back({limits[i], point.id});
      } else if (limits[i].need > worst[i].limit.need) {
        worst[i] = {limits[i], point.id};
      }
    }
  }
  return worst;
}

std::string warning_of(const Limit& limit) {
  return limit.name + ": needs " + std::to_string(limit.need) + " of " + std::to_string(limit.value) + ": " +
         limit.beyond;
}

}  // namespace xblk::plan
