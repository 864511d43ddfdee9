// Names of the xenstore keys of a vbd, relative to the backend's or the frontend's directory (<xen/io/blkif.h>).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "drivers/base/result.hpp"

namespace xblk::blkif::keys {

// Both directories.
inline constexpr std::string_view kState = "state";                           // XenbusState, decimal
inline constexpr std::string_view kFeaturePersistent = "feature-persistent";  // 0/1: this end's offer; both make it so

// Backend directory, written by the toolstack.
inline constexpr std::string_view kFrontend = "frontend";             // path of the frontend's directory
inline constexpr std::string_view kFrontendId = "frontend-id";        // the frontend's domain
inline constexpr std::string_view kOnline = "online";                 // 0 once the device is being detached
inline constexpr std::string_view kMode = "mode";                     // "r" or "w"
inline constexpr std::string_view kParams = "params";                 // what to open
inline constexpr std::string_view kType = "type";                     // kind of the backing store
inline constexpr std::string_view kDiscardEnable = "discard-enable";  // 0: do not offer discard (default 1)

// Backend directory, written by the backend before InitWait.
inline constexpr std::string_view kMaxQueues = "multi-queue-max-queues";                   // rings it serves at most
inline constexpr std::string_view kMaxRingPageOrder = "max-ring-page-order";               // log2 of pages per ring
inline constexpr std::string_view kMaxIndirectSegments = "feature-max-indirect-segments";  // absent: no op 6

// Backend directory, written by the backend before Connected.
inline constexpr std::string_view kSectors = "sectors";                          // capacity in 512-byte units
inline constexpr std::string_view kSectorSize = "sector-size";                   // logical block, bytes
inline constexpr std::string_view kPhysicalSectorSize = "physical-sector-size";  // bytes; default sector-size
inline constexpr std::string_view kInfo = "info";                                // VDISK_* bits
inline constexpr std::string_view kFeatureFlushCache = "feature-flush-cache";    // 0/1: op 3
inline constexpr std::string_view kFeatureBarrier = "feature-barrier";           // 0/1: op 2
inline constexpr std::string_view kFeatureDiscard = "feature-discard";           // 0/1: op 5
inline constexpr std::string_view kDiscardGranularity = "discard-granularity";   // bytes; default sector-size
inline constexpr std::string_view kDiscardAlignment = "discard-alignment";       // bytes; default 0
inline constexpr std::string_view kDiscardSecure = "discard-secure";             // 0/1: BLKIF_DISCARD_SECURE

// Frontend directory, written by the toolstack.
inline constexpr std::string_view kBackend = "backend";               // path of the backend's directory
inline constexpr std::string_view kBackendId = "backend-id";          // the backend's domain
inline constexpr std::string_view kVirtualDevice = "virtual-device";  // device number
inline constexpr std::string_view kTrusted = "trusted";               // 0: the backend may be hostile (default 1)

// Frontend directory, written by the frontend before Initialised.
inline constexpr std::string_view kNumQueues = "multi-queue-num-queues";  // absent: 1
inline constexpr std::string_view kRingPageOrder = "ring-page-order";     // absent: 0
inline constexpr std::string_view kRingRef = "ring-ref";                  // the only page; per queue
inline constexpr std::string_view kEventChannel = "event-channel";        // per queue
inline constexpr std::string_view kProtocol = "protocol";                 // ABI of the ring

// Of xblk, in each end's directory.
inline constexpr std::string_view kPolicyDirectory = "xblk-policy";            // xblk-policy/<name>: see policy.hpp
inline constexpr std::string_view kPolicyReconnect = "xblk-policy/reconnect";  // any write: reconnect, policies anew
inline constexpr std::string_view kNegotiatedDirectory =
    "xblk-negotiated";                                              // xblk-negotiated/<name of the policy>: the result
inline constexpr std::string_view kStatistics = "xblk-statistics";  // path of the statistics file

// "xblk-policy/queues", "xblk-negotiated/queues".
std::string policy_key(std::string_view name);
std::string negotiated_key(std::string_view name);
// "queue-3/"
std::string queue_prefix(std::uint32_t queue);
// blkif.h note 6: "ring-ref" for the sole page of a ring, "ring-ref0", "ring-ref1"... for several.
std::string ring_ref_key(std::uint32_t page, std::uint32_t pages);

// An unsigned decimal within [min, max]; the error names the key, the value and the range. The range is checked here,
// before the number reaches a shift, a multiplication or an allocation.
Result<std::uint64_t> parse_bounded(std::string_view key, std::string_view text, std::uint64_t min, std::uint64_t max);

}  // namespace xblk::blkif::keys
