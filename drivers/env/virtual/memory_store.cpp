#include "drivers/env/virtual/memory_store.hpp"

#include <algorithm>
#include <cctype>

#include "drivers/base/check.hpp"

namespace xblk::env {
namespace {

// The rule of xenstore (docs/misc/xenstore.txt): alphanumerics and "-/_@", no empty component.
bool valid(const std::string& absolute) {
  if (absolute == "/") return true;
  if (absolute.back() == '/' || absolute.find("//") != std::string::npos) return false;
  return std::all_of(absolute.begin(), absolute.end(), [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '-' || c == '/' || c == '_' || c == '@';
  });
}

std::string below(const std::string& path) {
  return path == "/" ? path : path + "/";
}

bool is_below(const std::string& path, const std::string& ancestor) {
  return path.starts_with(below(ancestor));
}

std::string parent_of(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  return slash == 0 ? "/" : path.substr(0, slash);
}

tl::unexpected<Error> absent(const char* call, const std::string& path) {
  return fail(ENOENT, std::string("key store: ") + call + " " + path + ": no such key");
}

}  // namespace

void MemoryStore::put(const std::string& path, const std::string& value) {
  for (std::string parent = parent_of(path); tree_.try_emplace(parent).second;) parent = parent_of(parent);
  tree_[path] = value;
  changed({path, false});
}

void MemoryStore::erase(const std::string& path) {
  std::vector<std::string> gone;
  for (auto node = tree_.lower_bound(below(path)); node != tree_.end() && is_below(node->first, path);) {
    gone.push_back(node->first);
    node = tree_.erase(node);
  }
  tree_.erase(path);
  changed({path, false});
  for (std::string& child : gone) changed({std::move(child), true});
}

void MemoryStore::changed(Change change) {
  if (before_transaction_) {
    uncommitted_.push_back(std::move(change));
  } else {
    tell_watches(change);
  }
}

void MemoryStore::tell_watches(const Change& change) {
  for (const Watch& watch : watches_) {
    if (change.path != watch.path && (change.exact || !is_below(change.path, watch.path))) continue;
    // A watch given as a relative path reports relative paths.
    std::string reported =
        watch.given == watch.path ? change.path : watch.given + change.path.substr(watch.path.size());
    watch.owner->events_.push_back({std::move(reported), watch.token});
  }
}

MemoryKeys::MemoryKeys(MemoryStore& store, DomId domain)
    : store_(store), home_("/local/domain/" + std::to_string(domain.value()) + "/") {}

MemoryKeys::~MemoryKeys() {
  std::erase_if(store_.watches_, [this](const MemoryStore::Watch& watch) { return watch.owner == this; });
}

Result<std::string> MemoryKeys::absolute(const char* call, const std::string& path) const {
  std::string full = path.starts_with('/') ? path : home_ + path;
  if (path.empty() || !valid(full))
    return fail(EINVAL, std::string("key store: ") + call + ": bad path '" + path + "'");
  return full;
}

Result<std::string> MemoryKeys::read(const std::string& path) {
  const auto full = absolute("read", path);
  if (!full) return tl::unexpected(full.error());
  const auto node = store_.tree_.find(*full);
  if (node == store_.tree_.end()) return absent("read", path);
  return node->second;
}

Status MemoryKeys::write(const std::string& path, const std::string& value) {
  const auto full = absolute("write", path);
  if (!full) return tl::unexpected(full.error());
  store_.put(*full, value);
  return {};
}

Status MemoryKeys::remove(const std::string& path) {
  const auto full = absolute("remove", path);
  if (!full) return tl::unexpected(full.error());
  if (*full == "/") return fail(EINVAL, "key store: remove: the root cannot be removed");
  if (store_.tree_.contains(*full)) store_.erase(*full);
  return {};
}

Result<std::vector<std::string>> MemoryKeys::list(const std::string& path) {
  const auto full = absolute("list", path);
  if (!full) return tl::unexpected(full.error());
  if (!store_.tree_.contains(*full)) return absent("list", path);
  const std::string prefix = below(*full);
  std::vector<std::string> names;
  for (auto node = store_.tree_.lower_bound(prefix); node != store_.tree_.end() && is_below(node->first, *full);
       ++node) {
    const std::string name = node->first.substr(prefix.size());
    if (!name.empty() && name.find('/') == std::string::npos) names.push_back(name);
  }
  return names;
}

Status MemoryKeys::make_directory(const std::string& path) {
  const auto full = absolute("mkdir", path);
  if (!full) return tl::unexpected(full.error());
  if (!store_.tree_.contains(*full)) store_.put(*full, "");
  return {};
}

Result<std::map<std::string, std::string>> MemoryKeys::read_tree(const std::string& path) {
  const auto full = absolute("read", path);
  if (!full) return tl::unexpected(full.error());
  if (!store_.tree_.contains(*full)) return absent("read", path);
  const std::string prefix = below(*full);
  std::map<std::string, std::string> found;
  for (auto node = store_.tree_.lower_bound(prefix); node != store_.tree_.end() && is_below(node->first, *full);
       ++node) {
    const auto child = store_.tree_.lower_bound(below(node->first));
    const bool has_children = child != store_.tree_.end() && is_below(child->first, node->first);
    if (node->first != *full && (!node->second.empty() || !has_children))
      found.emplace(node->first.substr(prefix.size()), node->second);
  }
  return found;
}

Status MemoryKeys::set_permissions(const std::string& path, DomId, std::span<const KeyPermission>) {
  const auto full = absolute("set permissions of", path);
  if (!full) return tl::unexpected(full.error());
  if (!store_.tree_.contains(*full)) return absent("set permissions of", path);
  return {};
}

Status MemoryKeys::watch(const std::string& path, const std::string& token) {
  const auto full = absolute("watch", path);
  if (!full) return tl::unexpected(full.error());
  for (const MemoryStore::Watch& known : store_.watches_) {
    if (known.owner == this && known.given == path && known.token == token)
      return fail(EEXIST, "key store: watch " + path + ": already watched with token " + token);
  }
  store_.watches_.push_back({this, *full, path, token});
  events_.push_back({path, token});
  return {};
}

Status MemoryKeys::unwatch(const std::string& path, const std::string& token) {
  const auto full = absolute("unwatch", path);
  if (!full) return tl::unexpected(full.error());
  const std::size_t removed = std::erase_if(store_.watches_, [&](const MemoryStore::Watch& watch) {
    return watch.owner == this && watch.given == path && watch.token == token;
  });
  if (removed == 0) return absent("unwatch", path);
  std::erase_if(events_, [&](const WatchEvent& event) {
    return event.token == token && (event.path == path || is_below(event.path, path));
  });
  return {};
}

std::optional<WatchEvent> MemoryKeys::poll_watch() {
  if (events_.empty()) return std::nullopt;
  WatchEvent event = std::move(events_.front());
  events_.pop_front();
  return event;
}

Status MemoryKeys::transaction(const std::function<Status(MemoryKeys&)>& body) {
  XBLK_CHECK(!store_.before_transaction_, "one thread, so one transaction at a time");
  store_.before_transaction_ = store_.tree_;
  const Status done = body(*this);
  if (!done) store_.tree_ = std::move(*store_.before_transaction_);
  store_.before_transaction_.reset();
  const auto changes = std::exchange(store_.uncommitted_, {});
  if (!done) return done;
  for (const MemoryStore::Change& change : changes) store_.tell_watches(change);
  return {};
}

}  // namespace xblk::env
