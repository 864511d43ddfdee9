#include "drivers/keystore/client.hpp"

extern "C" {
#include <xenstore.h>
}

#include <sys/un.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <mutex>

#include "drivers/base/check.hpp"

namespace xblk::keystore {
namespace {

constexpr const char* kPathVariable = "XENSTORED_PATH";

// libxenstore hands out malloc'ed memory.
struct Free {
  void operator()(void* memory) const { std::free(memory); }
};
template <class T>
using Owned = std::unique_ptr<T, Free>;

// Aims libxenstore at `path` for one xs_open(). Writes to the environment only when it has to.
class PathInEnvironment {
 public:
  explicit PathInEnvironment(const std::string& path) {
    const char* before = std::getenv(kPathVariable);
    if (path.empty() || (before != nullptr && path == before)) return;
    if (before != nullptr) before_ = before;
    changed_ = ::setenv(kPathVariable, path.c_str(), 1) == 0;
  }
  ~PathInEnvironment() {
    if (!changed_) return;
    if (before_) {
      ::setenv(kPathVariable, before_->c_str(), 1);
    } else {
      ::unsetenv(kPathVariable);
    }
  }
  PathInEnvironment(const PathInEnvironment&) = delete;
  PathInEnvironment& operator=(const PathInEnvironment&) = delete;

 private:
  std::optional<std::string> before_;
  bool changed_ = false;
};

// xenstored answers with an errno alone when a domain has used up what it may have; its texts would mislead.
std::string reason(const std::string& call, int code) {
  if (code == ENOSPC && call == "begin of") return "the domain has as many transactions open as xenstored allows it";
  if (code == ENOSPC) return "the domain's quota in xenstored is used up (number of nodes, or size of one)";
  if (code == E2BIG && call == "watch") return "the domain has as many watches as xenstored allows it";
  return std::strerror(code);
}

bool connection_lost(int code) {
  return code == EBADF || code == EPIPE || code == ECONNRESET;
}

// Not xs_path_is_subpath(): that one finds nothing below "/".
bool at_or_below(const std::string& path, const std::string& ancestor) {
  return path == ancestor || ancestor == "/" || path.starts_with(ancestor + "/");
}

Permission from_wire(const xs_permissions& entry) {
  return {DomId(static_cast<std::uint16_t>(entry.id)), (entry.perms & XS_PERM_READ) != 0,
          (entry.perms & XS_PERM_WRITE) != 0};
}

xs_permissions to_wire(const Permission& entry) {
  xs_permissions wire{};
  wire.id = entry.domain.value();
  wire.perms = static_cast<decltype(wire.perms)>((entry.read ? XS_PERM_READ : 0) | (entry.write ? XS_PERM_WRITE : 0));
  return wire;
}

}  // namespace

void Client::Close::operator()(xs_handle* handle) const {
  xs_close(handle);
}

Result<Client> Client::connect(const std::string& socket_path) {
  if (socket_path.size() >= sizeof(sockaddr_un::sun_path))
    return fail(ENAMETOOLONG,
                "xenstore: socket path " + socket_path + " is longer than the 107 bytes a unix socket allows");
  static std::mutex environment_mutex;
  const std::scoped_lock lock(environment_mutex);
  const PathInEnvironment aim(socket_path);
  xs_handle* handle = xs_open(0);
  if (handle == nullptr) {
    const int code = errno;
    const char* chosen = std::getenv(kPathVariable);
    return fail(code, std::string("xenstore: cannot reach xenstored at ") +
                          (chosen != nullptr ? chosen : "its default places (XENSTORED_PATH is not set)") + ": " +
                          std::strerror(code) + "; is the host up?");
  }
  return Client(handle);
}

// The errno of a lost connection depends on where libxenstore noticed it; callers get one code, ENOTCONN.
Error Client::error(const std::string& call, const std::string& path) {
  const int code = errno;
  const std::string what = "xenstore: " + call + " " + path + ": ";
  // With its reader thread running, libxenstore reports a lost connection as EINVAL first and as EBADF from then on.
  if (connection_lost(code) || (code == EINVAL && !alive()))
    return {ENOTCONN, what + "the connection to xenstored is lost"};
  return {code, what + reason(call, code)};
}

bool Client::alive() {
  const Owned<char> home(xs_get_domain_path(handle_.get(), 0));
  return home != nullptr || !connection_lost(errno);
}

Result<std::string> Client::read(const std::string& path) {
  unsigned length = 0;
  const Owned<char> value(static_cast<char*>(xs_read(handle_.get(), transaction_, path.c_str(), &length)));
  if (!value) return tl::unexpected(error("read", path));
  return std::string(value.get(), length);
}

Status Client::write(const std::string& path, const std::string& value) {
  const auto length = static_cast<unsigned>(value.size());
  if (!xs_write(handle_.get(), transaction_, path.c_str(), value.data(), length))
    return tl::unexpected(error("write", path));
  return {};
}

Status Client::remove(const std::string& path) {
  if (!xs_rm(handle_.get(), transaction_, path.c_str()) && errno != ENOENT)
    return tl::unexpected(error("remove", path));
  return {};
}

Result<std::vector<std::string>> Client::list(const std::string& path) {
  unsigned count = 0;
  const Owned<char*> names(xs_directory(handle_.get(), transaction_, path.c_str(), &count));
  if (!names) return tl::unexpected(error("list", path));
  return std::vector<std::string>(names.get(), names.get() + count);
}

Status Client::make_directory(const std::string& path) {
  if (!xs_mkdir(handle_.get(), transaction_, path.c_str())) return tl::unexpected(error("mkdir", path));
  return {};
}

Result<std::map<std::string, std::string>> Client::read_tree(const std::string& path) {
  std::map<std::string, std::string> tree;
  if (Status read = read_below(path, "", tree); !read) return tl::unexpected(read.error());
  return tree;
}

// Depth is bounded by the length of a path (XENSTORE_ABS_PATH_MAX), breadth by kMaxTreeNodes.
Status Client::read_below(const std::string& path, const std::string& prefix,
                          std::map<std::string, std::string>& tree) {
  auto names = list(path);
  if (!names) {
    if (names.error().code == ENOENT && !prefix.empty()) return {};
    return tl::unexpected(names.error());
  }
  if (!prefix.empty()) {
    auto value = read(path);
    if (!value && value.error().code != ENOENT) return tl::unexpected(value.error());
    if (value && (!value->empty() || names->empty())) tree.emplace(prefix, *value);
  }
  if (tree.size() + names->size() > kMaxTreeNodes)
    return fail(E2BIG, "xenstore: " + path + " holds more than " + std::to_string(kMaxTreeNodes) + " nodes");
  const std::string parent = path == "/" ? "" : path;
  for (const std::string& name : *names) {
    if (Status below = read_below(parent + "/" + name, prefix.empty() ? name : prefix + "/" + name, tree); !below)
      return below;
  }
  return {};
}

Status Client::set_permissions(const std::string& path, DomId owner, std::span<const Permission> peers) {
  std::vector<xs_permissions> wire{to_wire({owner, false, false})};
  for (const Permission& peer : peers) wire.push_back(to_wire(peer));
  if (!xs_set_permissions(handle_.get(), transaction_, path.c_str(), wire.data(), static_cast<unsigned>(wire.size())))
    return tl::unexpected(error("set permissions of", path));
  return {};
}

Result<std::vector<Permission>> Client::get_permissions(const std::string& path) {
  unsigned count = 0;
  const Owned<xs_permissions> wire(xs_get_permissions(handle_.get(), transaction_, path.c_str(), &count));
  if (!wire) return tl::unexpected(error("get permissions of", path));
  std::vector<Permission> entries;
  for (unsigned i = 0; i < count; ++i) entries.push_back(from_wire(wire.get()[i]));
  return entries;
}

Status Client::watch(const std::string& path, const std::string& token) {
  if (!xs_watch(handle_.get(), path.c_str(), token.c_str())) return tl::unexpected(error("watch", path));
  watches_.insert({path, token});
  return {};
}

Status Client::unwatch(const std::string& path, const std::string& token) {
  if (!xs_unwatch(handle_.get(), path.c_str(), token.c_str())) return tl::unexpected(error("unwatch", path));
  watches_.erase({path, token});
  return {};
}

// Events that were queued when their watch went are dropped here: XS_UNWATCH_FILTER would do it inside libxenstore, but
// leaks the body of each event that it drops (4.17, seen by LeakSanitizer).
std::optional<WatchEvent> Client::poll_watch() {
  while (const Owned<char*> raw{xs_check_watch(handle_.get())}) {
    WatchEvent event{raw.get()[XS_WATCH_PATH], raw.get()[XS_WATCH_TOKEN]};
    const auto is_of = [&event](const WatchEvent& watch) {
      return watch.token == event.token && at_or_below(event.path, watch.path);
    };
    if (std::any_of(watches_.begin(), watches_.end(), is_of)) return event;
  }
  return std::nullopt;
}

int Client::fd() const {
  return xs_fileno(handle_.get());
}

Status Client::transaction(const std::function<Status(Client&)>& body) {
  XBLK_CHECK(transaction_ == 0, "xenstore has no nested transactions");
  for (int attempt = 0; attempt <= kMaxConflicts; ++attempt) {
    transaction_ = xs_transaction_start(handle_.get());
    if (transaction_ == 0) return tl::unexpected(error("begin of", "transaction"));
    const Status done = body(*this);
    const bool ended = xs_transaction_end(handle_.get(), std::exchange(transaction_, 0), !done);
    if (!done) return done;
    if (ended) return {};
    if (errno != EAGAIN) return tl::unexpected(error("end of", "transaction"));
  }
  return fail(EAGAIN,
              "xenstore: transaction met " + std::to_string(kMaxConflicts + 1) + " conflicts in a row; giving up");
}

Status Client::introduce_domain(DomId domain, std::uint64_t frame, std::uint32_t port) {
  if (!xs_introduce_domain(handle_.get(), domain.value(), frame, port))
    return tl::unexpected(error("introduce domain", std::to_string(domain.value())));
  return {};
}

Status Client::release_domain(DomId domain) {
  if (!xs_release_domain(handle_.get(), domain.value()))
    return tl::unexpected(error("release domain", std::to_string(domain.value())));
  return {};
}

}  // namespace xblk::keystore
