// Changes policies of live vbds so that they can be undone: journalled, applied at a reconnect, restored at the end.
#pragma once

#include <string>
#include <vector>

#include "agent/host/host.hpp"
#include "agent/toggle/journal.hpp"
#include "agent/toggle/key_access.hpp"
#include "agent/toggle/restore.hpp"
#include "agent/toggle/vbd.hpp"

namespace xblk::toggle {

struct KeyWrite {
  std::string path;
  std::string value;
};

// The writes that apply() makes for these policies, for `xblk plan`; reads nothing.
std::vector<KeyWrite> plan(const Vbd& vbd, const Policies& policies);

class Toggle {
 public:
  // `keys` and `host` outlive the Toggle; `journal` becomes its own.
  Toggle(KeyAccess& keys, host::Host& host, Journal journal);
  Toggle(const Toggle&) = delete;
  Toggle& operator=(const Toggle&) = delete;
  // Restores, if restore() was not called. What fails then stays in the journal for `xblk restore`.
  ~Toggle();

  // As toggle::attach(), journalled: restore() detaches it.
  Status attach(const VbdConfig& config);

  // A file that is not there yet, journalled: restore() removes it.
  Status create_file(const std::filesystem::path& path, Bytes size);

  // Journal first, then one transaction: the policies, a changed reconnect counter if the frontend is connected (it
  // takes them at its next connect otherwise), and away with both ends' published results, so that nobody reads those
  // of the old connection. Limits of a backend that waits for its first frontend: see VbdConfig::policies.
  Status apply(const Vbd& vbd, const Policies& policies);

  // Until both ends are connected and have published a result. The error says which end is in which state.
  Status wait_connected(const Vbd& vbd, Nanos patience);

  // Everything that attach(), apply() and create_file() changed. Removes the journal when nothing is left to restore.
  Result<Restored> restore();

 private:
  Result<std::vector<KeyChange>> changes_for(const Vbd& vbd, const Policies& policies);

  KeyAccess& keys_;
  host::Host& host_;
  Journal journal_;
  std::vector<KeyChange> changes_;
  std::vector<Vbd> attached_;
  std::vector<CreatedFile> created_;
  bool closed_ = false;
};

}  // namespace xblk::toggle
