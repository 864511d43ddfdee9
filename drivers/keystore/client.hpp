// Client: one connection to xenstore through libxenstore, on Xen and on the emulation alike.
//
// A Client is used by one thread at a time. libxenstore starts a reader thread of its own at the first watch(); it
// touches only the connection's reply and watch queues.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "drivers/base/key_types.hpp"
#include "drivers/base/result.hpp"
#include "drivers/base/units.hpp"

struct xs_handle;

namespace xblk::keystore {

using Permission = KeyPermission;
using WatchEvent = xblk::WatchEvent;

class Client {
 public:
  // `socket_path` empty: libxenstore's own choice (XENSTORED_PATH, XENSTORED_RUNDIR, /dev/xen/xenbus), as on real Xen.
  // Otherwise exactly that socket, or an error. libxenstore takes the path from the environment only, so connect()
  // sets XENSTORED_PATH for the duration of the call when it differs: do not race it with getenv of other threads.
  static Result<Client> connect(const std::string& socket_path);

  Client(Client&&) noexcept = default;
  Client& operator=(Client&&) noexcept = default;

  Result<std::string> read(const std::string& path);  // ENOENT when absent
  Status write(const std::string& path, const std::string& value);
  Status remove(const std::string& path);  // with everything below; absent is no error
  Result<std::vector<std::string>> list(const std::string& path);
  Status make_directory(const std::string& path);  // already there is no error

  // Every node below `path` as relative key -> value; a node that has children and no value of its own is left out.
  // Nodes that vanish meanwhile are skipped; call it inside transaction() for a consistent picture.
  Result<std::map<std::string, std::string>> read_tree(const std::string& path);

  // libxl's form n<owner>,...: domains not in `peers` get nothing.
  Status set_permissions(const std::string& path, DomId owner, std::span<const Permission> peers);
  Result<std::vector<Permission>> get_permissions(const std::string& path);  // first entry: see KeyPermission

  // Fires once at registration and then at each change of `path` or below. EEXIST: same path and token again.
  Status watch(const std::string& path, const std::string& token);
  Status unwatch(const std::string& path, const std::string& token);  // drops its queued events; ENOENT: no such watch
  std::optional<WatchEvent> poll_watch();                             // never blocks
  // Readable when poll_watch() may have an event; drain until nullopt. It does NOT become readable when xenstored
  // dies (libxenstore keeps its pipe open), so long waits must be bounded and check alive().
  [[nodiscard]] int fd() const;
  bool alive();  // one round trip: does xenstored still answer?

  // Begins, runs `body`, ends. Reads and writes of the Client inside `body` belong to the transaction. A conflict
  // runs `body` again, up to kMaxConflicts times (then EAGAIN); an error of `body` aborts and is returned.
  Status transaction(const std::function<Status(Client&)>& body);

  Status introduce_domain(DomId domain, std::uint64_t frame, std::uint32_t port);  // control domain only
  Status release_domain(DomId domain);

  static constexpr int kMaxConflicts = 64;
  static constexpr std::size_t kMaxTreeNodes = 65536;  // a guest must not be able to exhaust a reader of its keys

 private:
  struct Close {
    void operator()(xs_handle* handle) const;
  };

  explicit Client(xs_handle* handle) : handle_(handle) {}
  Error error(const std::string& call, const std::string& path);
  Status read_below(const std::string& path, const std::string& prefix, std::map<std::string, std::string>& tree);

  std::unique_ptr<xs_handle, Close> handle_;
  std::set<WatchEvent> watches_;   // path and token of each watch()
  std::uint32_t transaction_ = 0;  // XBT_NULL outside transaction()
};

}  // namespace xblk::keystore
