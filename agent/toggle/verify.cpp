#include "agent/toggle/verify.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "drivers/base/check.hpp"
#include "drivers/blkif/keys.hpp"
#include "drivers/blkif/wire.hpp"
#include "drivers/blkif/xenbus_state.hpp"

namespace xblk::toggle {
namespace {

using Published = std::map<std::string, std::string>;

class Checklist {
 public:
  void equal(std::string name, const std::string& expected, const std::string& seen) {
    result_.checks.push_back({std::move(name), expected, seen, expected == seen});
  }
  void that(std::string name, std::string expected, std::uint64_t seen, bool ok) {
    result_.checks.push_back({std::move(name), std::move(expected), std::to_string(seen), ok});
  }
  Verification take() { return std::move(result_); }

 private:
  Verification result_;
};

std::string seen_in(const Published& published, const std::string& name) {
  const auto it = published.find(name);
  return it == published.end() ? "absent" : it->second;
}

// Both ends state the same result.
void check_shared(Checklist& list, const std::string& end, const Published& published, const Agreement& agreement) {
  list.equal(end + " persistent", agreement.persistent ? "1" : "0", seen_in(published, "persistent"));
  list.equal(end + " queues", std::to_string(agreement.queues), seen_in(published, "queues"));
  list.equal(end + " ring-page-order", std::to_string(agreement.ring_page_order),
             seen_in(published, "ring-page-order"));
}

// The frontend uses indirect requests only for more segments than a direct one holds.
std::uint32_t indirect_segments_used(const Agreement& agreement) {
  const std::uint32_t both = std::min(agreement.front.indirect_segments, agreement.back.indirect_segments);
  return both > blkif::kDirectSegmentsMax ? both : 0;
}

std::uint64_t delta(const StatisticsSample& begin, const StatisticsSample& end, Counter counter) {
  return end.total(counter) - begin.total(counter);
}

void check_data_path(Checklist& list, const Agreement& agreement, const CounterProof& proof) {
  const auto back = [&](Counter counter) { return delta(proof.back_begin, proof.back_end, counter); };
  const std::uint64_t hits = back(Counter::persistent_hits);
  if (agreement.persistent) {
    list.that("persistent hits", "more than 0", hits, hits > 0);
    // Above the cap the backend maps per request by design, and purged grants are unmapped: then unmaps prove nothing.
    const bool within_cap = back(Counter::persistent_overflows) == 0 && back(Counter::persistent_purged) == 0;
    if (within_cap) list.that("unmaps when warm", "0", back(Counter::unmaps), back(Counter::unmaps) == 0);
    return;
  }
  list.that("persistent hits", "0", hits, hits == 0);
  const bool copies = agreement.back.data_path == blkif::DataPath::copy;
  const std::uint64_t moved = back(copies ? Counter::copies : Counter::maps);
  list.that(copies ? "grant copies" : "grant maps", "more than 0", moved, moved > 0);
}

void check_queues(Checklist& list, const Agreement& agreement, const CounterProof& proof) {
  const auto& begin = proof.front_begin.queues;
  const auto& end = proof.front_end.queues;
  list.that("queues counted", std::to_string(agreement.queues), end.size(), end.size() == agreement.queues);
  std::uint64_t busy = 0;
  for (std::size_t q = 0; q < std::min(begin.size(), end.size()); ++q) {
    busy += end[q].get(Counter::requests) > begin[q].get(Counter::requests) ? 1 : 0;
  }
  const std::uint64_t expected = std::min(agreement.queues, proof.submitters);
  list.that("queues with requests", fmt::format("at least {}", expected), busy, busy >= expected);
}

}  // namespace

bool Verification::ok() const {
  return std::all_of(checks.begin(), checks.end(), [](const Check& check) { return check.ok; });
}

std::string Verification::first_failure() const {
  const auto it = std::find_if(checks.begin(), checks.end(), [](const Check& check) { return !check.ok; });
  if (it == checks.end()) return "";
  return fmt::format("{}: expected {}, seen {}", it->name, it->expected, it->seen);
}

Result<Agreement> agreement_of(const Policies& policies) {
  auto front = blkif::parse_front_policy(policies.front);
  if (!front) return tl::unexpected(front.error());
  auto back = blkif::parse_back_policy(policies.back);
  if (!back) return tl::unexpected(back.error());
  return Agreement{.persistent = front->persistent && back->persistent,
                   .queues = std::min(front->queues, back->queues),
                   .ring_page_order = std::min(front->ring_page_order, back->ring_page_order),
                   .front = *front,
                   .back = *back};
}

Result<Published> negotiated(KeyAccess& keys, const std::string& directory) {
  return keys.read_tree(fmt::format("{}/{}", directory, blkif::keys::kNegotiatedDirectory));
}

Verification verify_keys(KeyAccess& keys, const Vbd& vbd, const Agreement& agreement) {
  Checklist list;
  const std::string connected(blkif::xenbus_state_key(blkif::XenbusState::connected));
  const std::pair<std::string, std::string> ends[] = {{"front", vbd.frontend_directory()},
                                                      {"back", vbd.backend_directory()}};
  const auto front_keys = blkif::to_keys(agreement.front);
  const auto back_keys = blkif::to_keys(agreement.back);
  for (const auto& [end, directory] : ends) {
    list.equal(end + " state", connected, keys.read(directory + "/state").value_or("absent"));
    const Published published = negotiated(keys, directory).value_or(Published{});
    check_shared(list, end, published, agreement);
    const auto& own = end == "front" ? front_keys : back_keys;
    for (const char* name : {"pools", "polling"}) {
      list.equal(end + " " + name, own.at(name), seen_in(published, name));
    }
    if (end == "front") {
      list.equal("front indirect-segments", std::to_string(indirect_segments_used(agreement)),
                 seen_in(published, "indirect-segments"));
    } else {
      list.equal("back data-path", agreement.persistent ? "persistent" : back_keys.at("data-path"),
                 seen_in(published, "data-path"));
      list.equal("back max-persistent-grants", back_keys.at("max-persistent-grants"),
                 seen_in(published, "max-persistent-grants"));
    }
  }
  return list.take();
}

Verification verify_counters(const Agreement& agreement, const CounterProof& proof) {
  Checklist list;
  const bool same_connection = proof.front_begin.generation == proof.front_end.generation &&
                               proof.back_begin.generation == proof.back_end.generation;
  list.equal("one connection", "yes", same_connection ? "yes" : "no");
  if (!same_connection) return list.take();
  check_data_path(list, agreement, proof);
  check_queues(list, agreement, proof);
  return list.take();
}

}  // namespace xblk::toggle
