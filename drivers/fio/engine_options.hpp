// The engine's own job options, as fio parses them.
#pragma once

#include "drivers/base/result.hpp"
#include "drivers/fio/registry.hpp"

struct fio_option;
struct thread_data;

namespace xblk::fio_engine {

// fio fills this in by offset. The first word is fio's.
struct EngineOptions {
  thread_data* job;
  char* hypervisor;
  unsigned domid;
  char* device;
  char* xenstore;
  char* snapshots;
  char* statistics;
  char* policy;
};

// A table that ends with an empty entry, as fio wants it; fio keeps caches in it.
fio_option* option_table();
// What the device and the job need to know. EINVAL names the option that is missing or malformed.
Result<JobOptions> read_options(const EngineOptions& options, Bytes buffer_bytes);

}  // namespace xblk::fio_engine
