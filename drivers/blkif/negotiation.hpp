// What each end reads of the other's keys when they connect, and what it writes.
//
// Input maps hold a directory's keys by relative path ("queue-0/ring-ref"). All values come from the peer: numbers are
// bounded before use, and a set of keys that two readers could understand in two ways is refused, not guessed.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "drivers/base/result.hpp"
#include "drivers/base/statistics_file.hpp"
#include "drivers/base/units.hpp"
#include "drivers/blkif/keys.hpp"
#include "drivers/blkif/ring_layout.hpp"
#include "drivers/blkif/wire.hpp"

namespace xblk::blkif {

using KeyMap = std::map<std::string, std::string>;
using KeyList = std::vector<std::pair<std::string, std::string>>;

inline constexpr std::uint32_t kQueuesMax = kStatisticsQueuesMax;  // more could not be counted
inline constexpr std::uint32_t kSectorSizeMax = 4096;              // a segment cannot hold a larger block than its page
inline constexpr std::uint64_t kCapacityMaxSectors = std::uint64_t{1} << 54;  // in bytes still an off_t

// Published by the backend before InitWait. Defaults are those of blkif.h for missing keys.
struct BackendLimits {
  std::uint32_t queues_max = 1;
  std::uint32_t ring_page_order_max = 0;
  std::uint16_t indirect_segments_max = 0;  // 0: indirect requests are not offered

  friend bool operator==(const BackendLimits&, const BackendLimits&) = default;
};

// Published by the backend before Connected, on top of its limits.
struct BackendOffer {
  BackendLimits limits;
  Sectors sectors{};
  std::uint32_t info = 0;  // kVdisk* bits
  std::uint32_t sector_size = kSectorSize;
  std::uint32_t physical_sector_size = kSectorSize;
  bool persistent = false;
  bool flush = false;
  bool barrier = false;
  bool discard = false;
  bool discard_secure = false;                      // only with discard
  std::uint32_t discard_granularity = kSectorSize;  // bytes; only with discard
  std::uint32_t discard_alignment = 0;              // bytes; only with discard

  friend bool operator==(const BackendOffer&, const BackendOffer&) = default;
};
inline constexpr std::uint32_t kVdiskCdrom = 1;
inline constexpr std::uint32_t kVdiskRemovable = 2;
inline constexpr std::uint32_t kVdiskReadonly = 4;

struct QueueOffer {
  std::vector<GrantRef> ring_refs;  // 1 << ring_page_order of them
  EventPort event_channel{};

  friend bool operator==(const QueueOffer&, const QueueOffer&) = default;
};

// Published by the frontend before Initialised.
struct FrontendOffer {
  Abi abi = kNativeAbi;
  bool persistent = false;
  std::uint32_t ring_page_order = 0;
  std::vector<QueueOffer> queues;

  friend bool operator==(const FrontendOffer&, const FrontendOffer&) = default;
};

// Backend: what the frontend asks for. Refused: more than the limits, missing or repeated references and ports, and
// keys of an earlier connection mixed with those of this one (a frontend that does not delete its old keys, as Linux
// blkfront does not, would have stale grants mapped). Queue directories and pages beyond the counts are ignored.
Result<FrontendOffer> parse_frontend_keys(const KeyMap& keys, const BackendLimits& limits);
// Frontend: the keys to write for an offer, and which of those that exist must be deleted in the same transaction.
// A stale queue is named by its directory.
KeyList frontend_keys(const FrontendOffer& offer);
std::vector<std::string> stale_frontend_keys(const FrontendOffer& offer, const KeyMap& existing);

// Frontend: the backend's limits at InitWait, cut to what this implementation can use.
Result<BackendLimits> parse_backend_limits(const KeyMap& keys);
// Frontend: everything, at Connected.
Result<BackendOffer> parse_backend_keys(const KeyMap& keys);
// Backend: the keys to write before InitWait, and before Connected.
KeyList backend_limit_keys(const BackendLimits& limits);
KeyList backend_property_keys(const BackendOffer& offer);

}  // namespace xblk::blkif
