// Puts back what a journal says was there before.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "agent/host/host.hpp"
#include "agent/toggle/journal.hpp"
#include "agent/toggle/key_access.hpp"

namespace xblk::toggle {

struct Restored {
  std::size_t restored = 0;            // keys put back and read back
  std::size_t unchanged = 0;           // already as before: the change was never made, or restored earlier
  std::size_t device_gone = 0;         // the vbd was detached, and the keys with it
  std::size_t detached = 0;            // vbds that the journal's process had attached
  std::size_t removed = 0;             // files that it had created
  std::vector<std::string> forced;     // of these: their backends did not close in time, one line each
  std::vector<std::string> conflicts;  // somebody else changed them since; left alone, one line each
};

// Detaches the vbds, then puts back the keys of all others in one transaction, so that a driver that reacts sees all of
// them or none. Doing it again changes nothing.
Result<Restored> restore(KeyAccess& keys, host::Host& host, std::span<const Vbd> attached,
                         std::span<const KeyChange> changes);

// The files of a journal. What does not succeed is a line of `conflicts`.
void remove_created(std::span<const CreatedFile> created, Restored& outcome);

struct RestoreReport {
  std::filesystem::path journal;
  Restored restored;
  std::string unrestorable;  // why nothing could be done; empty when something could
  [[nodiscard]] bool complete() const { return unrestorable.empty() && restored.conflicts.empty(); }
};

// Opens xenstore at a journal's socket.
using Connector = std::function<Result<std::unique_ptr<KeyAccess>>(const std::string& xenstore)>;

// Abandoned journals, of one run or (with an empty path) of all. A journal whose keys are all as before is removed, any
// other is kept.
Result<std::vector<RestoreReport>> restore_abandoned(const std::filesystem::path& directory, host::Host& host,
                                                     const Connector& connect,
                                                     const std::filesystem::path& of_run = {});

}  // namespace xblk::toggle
