// Policies: what an experiment varies. The toggle writes them as keys `xblk-policy/<name>` into an end's directory; the
// driver of that end reads them at each connect. One table defines every policy; drivers, agent and profiles use it.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>

#include "drivers/base/result.hpp"

namespace xblk::blkif {

enum class Pools : std::uint8_t { per_device, per_queue };    // whether queues share a grant pool or page pool
enum class Polling : std::uint8_t { event, adaptive };        // wait for each event, or poll while there is work
enum class DataPath : std::uint8_t { map, copy, hybrid };     // map and unmap per request, grant copy, or by size
enum class GrantLocks : std::uint8_t { coarse, split };       // one lock of a grant table, or several
enum class FinalCheck : std::uint8_t { response, dispatch };  // where the backend looks for further requests (seed 001)
enum class Lookup : std::uint8_t { list, tree, array };       // how a persistent grant is found by its gref (seed 003)
enum class Purge : std::uint8_t { off, lru };                 // what happens when the persistent pool is full
enum class QueueMap : std::uint8_t { spread, device };        // a device's rings over all workers, or on one
enum class Ordering : std::uint8_t { none, barrier, flush, both };  // which of the two the backend offers
enum class Discard : std::uint8_t { off, on, secure };              // what the backend offers, if its store can

// A driver of history, by name: the values that every policy has unless it is written itself (policy_presets.hpp).
enum class Preset : std::uint8_t { none, linux_6_x, seed_2011, seed_2012, seed_2015 };

// Defaults are those of policy_keys(), which says what each one means.
struct FrontPolicy {
  Preset preset = Preset::none;
  bool persistent = true;
  std::uint32_t queues = 1;
  std::uint32_t ring_page_order = 0;
  std::uint32_t indirect_segments = 32;
  Pools pools = Pools::per_queue;
  Polling polling = Polling::adaptive;
  std::uint32_t event_holdoff = 1;      // responses
  std::uint32_t event_holdoff_us = 50;  // at most this long
  bool trusted = true;

  friend bool operator==(const FrontPolicy&, const FrontPolicy&) = default;
};

struct BackPolicy {
  Preset preset = Preset::none;
  bool persistent = true;
  DataPath data_path = DataPath::map;
  std::uint32_t hybrid_threshold = 16384;  // bytes
  std::uint32_t unmap_batch = 32;          // pages
  std::uint32_t queues = 4;
  std::uint32_t ring_page_order = 4;
  std::uint32_t indirect_segments = 256;
  std::uint32_t max_persistent_grants = 1056;
  Lookup persistent_lookup = Lookup::array;
  Purge persistent_purge = Purge::lru;
  std::uint32_t persistent_unused_ms = 60000;
  std::uint32_t max_free_pages = 1024;
  Pools pools = Pools::per_queue;
  Polling polling = Polling::adaptive;
  FinalCheck final_check = FinalCheck::dispatch;
  std::uint32_t event_holdoff = 1;      // requests
  std::uint32_t event_holdoff_us = 50;  // at most this long
  QueueMap queue_map = QueueMap::spread;
  Ordering ordering = Ordering::both;
  Discard discard = Discard::secure;

  friend bool operator==(const BackPolicy&, const BackPolicy&) = default;
};

// Of the host: it holds for all its devices, and changes only between runs.
struct HostPolicy {
  GrantLocks grant_locks = GrantLocks::split;

  friend bool operator==(const HostPolicy&, const HostPolicy&) = default;
};

enum class PolicyEnd : std::uint8_t { front = 1, back = 2, host = 4 };
std::string_view to_string(PolicyEnd end);

enum class PolicyKind : std::uint8_t { boolean, integer, words };

struct PolicyKey {
  std::string_view name;
  std::uint8_t ends;  // PolicyEnd bits
  PolicyKind kind;
  std::uint64_t min;  // integer: the range; words: 0 .. words.size() - 1
  std::uint64_t max;
  std::span<const std::string_view> words;
  std::uint64_t front_default;
  std::uint64_t back_default;
  std::uint64_t host_default;
  std::string_view help;

  [[nodiscard]] bool applies_to(PolicyEnd end) const { return (ends & static_cast<std::uint8_t>(end)) != 0; }
  [[nodiscard]] std::uint64_t default_of(PolicyEnd end) const {
    return end == PolicyEnd::front ? front_default : end == PolicyEnd::back ? back_default : host_default;
  }
};

std::span<const PolicyKey> policy_keys();
const PolicyKey* find_policy(std::string_view name);

// Text to number and back: a boolean is 0 or 1 (also off/on, false/true), a word its position. The error names the
// policy, the value and what is allowed.
Result<std::uint64_t> parse_policy_value(const PolicyKey& key, std::string_view text);
std::string print_policy_value(const PolicyKey& key, std::uint64_t value);
std::string allowed_values(const PolicyKey& key);

// From the entries of `xblk-policy` (names without the directory; `reconnect` is no policy and is passed over). What
// is missing has the preset's value, without a preset its default; an unknown name, a policy of another end or a bad
// value is an error.
using PolicyMap = std::map<std::string, std::string>;
Result<FrontPolicy> parse_front_policy(const PolicyMap& entries);
Result<BackPolicy> parse_back_policy(const PolicyMap& entries);
Result<HostPolicy> parse_host_policy(const PolicyMap& entries);

// The inverse: every policy of the end, defaults too.
PolicyMap to_keys(const FrontPolicy& policy);
PolicyMap to_keys(const BackPolicy& policy);
PolicyMap to_keys(const HostPolicy& policy);

}  // namespace xblk::blkif
