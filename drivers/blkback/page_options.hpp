// How a ring reaches its frontend's pages, as the policies say: everything that GrantedPages and the pools are told.
#pragma once

#include <cstdint>

#include "drivers/base/units.hpp"
#include "drivers/blkif/policy.hpp"

namespace xblk::blkback {

enum class DataPath : std::uint8_t {
  persistent,  // mapped once and kept, found again by gref (seed 003); what is not kept takes the path `map`
  map,         // mapped for the request
  copy,        // copied by the hypervisor
  hybrid,      // by the length of the request's data: copied up to the threshold, mapped above it
};

struct PageOptions {
  DataPath path = DataPath::map;
  Bytes hybrid_threshold{};
  std::uint32_t unmap_batch = 1;  // pages; 1: a call per request
  std::uint32_t max_persistent_grants = 0;
  blkif::Lookup lookup = blkif::Lookup::array;
  blkif::Purge purge = blkif::Purge::off;
  Nanos unused_limit = kForever;  // a persistent grant unused for longer is given up
  std::uint32_t max_free_pages = 0;
};

// `persistent`: offered by both ends.
[[nodiscard]] inline PageOptions page_options(const blkif::BackPolicy& policy, bool persistent) {
  const auto path_without_persistence = [&] {
    switch (policy.data_path) {
      case blkif::DataPath::copy:
        return DataPath::copy;
      case blkif::DataPath::hybrid:
        return DataPath::hybrid;
      case blkif::DataPath::map:
        break;
    }
    return DataPath::map;
  };
  PageOptions options;
  options.path = persistent ? DataPath::persistent : path_without_persistence();
  options.hybrid_threshold = Bytes(policy.hybrid_threshold);
  options.unmap_batch = policy.unmap_batch;
  options.max_persistent_grants = policy.max_persistent_grants;
  options.lookup = policy.persistent_lookup;
  options.purge = policy.persistent_purge;
  if (policy.persistent_unused_ms != 0) options.unused_limit = millis(policy.persistent_unused_ms);
  options.max_free_pages = policy.max_free_pages;
  return options;
}

}  // namespace xblk::blkback
