// How a persistent grant is found by its reference: the structures that the field argues about, each in its plainest
// form. `steps` counts the entries looked at.
//
//   list    seed 003: "we have to perform a linear search through this array to find the page, for every gref"
//   tree    Linux since 3.8: a red-black tree by gref
//   array   indexed by gref: references are small dense integers (a v1 table has at most 32,768 by default), and only a
//           gref that the hypervisor has just mapped is ever inserted, so a hostile frontend cannot make the array
//           larger than its own grant table
#pragma once

#include <boost/intrusive/list_hook.hpp>
#include <boost/intrusive/options.hpp>
#include <boost/intrusive/set.hpp>
#include <boost/intrusive/set_hook.hpp>

#include <cstdint>
#include <variant>
#include <vector>

#include "drivers/base/units.hpp"
#include "drivers/blkif/policy.hpp"

namespace xblk::blkback {

using LruHook = boost::intrusive::list_base_hook<>;
using TreeHook = boost::intrusive::set_base_hook<boost::intrusive::optimize_size<true>>;

// One grant that is kept mapped. It stays where it is while it is cached, so whoever pins it may keep a pointer.
struct PersistentGrant : LruHook, TreeHook {
  GrantRef gref{};
  MapHandle handle{};
  std::byte* address = nullptr;
  Instant last_use{};
  std::uint32_t position = 0;  // in the list

  // A grant in use is not on the list of those that may be given up.
  [[nodiscard]] bool pinned() const { return !LruHook::is_linked(); }
};

class ListIndex {
 public:
  [[nodiscard]] PersistentGrant* find(GrantRef gref, std::uint64_t& steps) const {
    for (const Entry& entry : entries_) {
      ++steps;
      if (entry.gref == gref) return entry.grant;
    }
    return nullptr;
  }
  void insert(PersistentGrant& grant) {
    grant.position = static_cast<std::uint32_t>(entries_.size());
    entries_.push_back({grant.gref, &grant});
  }
  void erase(PersistentGrant& grant) {
    entries_[grant.position] = entries_.back();
    entries_[grant.position].grant->position = grant.position;
    entries_.pop_back();
  }

 private:
  struct Entry {
    GrantRef gref;
    PersistentGrant* grant;
  };
  std::vector<Entry> entries_;
};

class TreeIndex {
 public:
  // As std::map, down to a leaf also when the entry is met on the way.
  [[nodiscard]] PersistentGrant* find(GrantRef gref, std::uint64_t& steps) {
    const auto counted_less = [&steps](GrantRef a, GrantRef b) {
      ++steps;
      return a < b;
    };
    const auto found = tree_.lower_bound(gref, counted_less);
    return found != tree_.end() && found->gref == gref ? &*found : nullptr;
  }
  void insert(PersistentGrant& grant) { tree_.insert(grant); }
  void erase(PersistentGrant& grant) { tree_.erase(tree_.iterator_to(grant)); }

 private:
  struct KeyOf {
    using type = GrantRef;
    const GrantRef& operator()(const PersistentGrant& grant) const { return grant.gref; }
  };
  boost::intrusive::set<PersistentGrant, boost::intrusive::base_hook<TreeHook>, boost::intrusive::key_of_value<KeyOf>,
                        boost::intrusive::constant_time_size<false>>
      tree_;
};

class ArrayIndex {
 public:
  [[nodiscard]] PersistentGrant* find(GrantRef gref, std::uint64_t& steps) const {
    ++steps;
    return gref.value() < grants_.size() ? grants_[gref.value()] : nullptr;
  }
  void insert(PersistentGrant& grant) {
    if (grant.gref.value() >= grants_.size()) grants_.resize(grant.gref.value() + 1);
    grants_[grant.gref.value()] = &grant;
  }
  void erase(PersistentGrant& grant) { grants_[grant.gref.value()] = nullptr; }

 private:
  std::vector<PersistentGrant*> grants_;
};

// The one chosen at connect. insert() may throw std::bad_alloc and has done nothing then.
class PersistentIndex {
 public:
  explicit PersistentIndex(blkif::Lookup lookup) {
    switch (lookup) {
      case blkif::Lookup::list:
        index_.emplace<ListIndex>();
        break;
      case blkif::Lookup::tree:
        index_.emplace<TreeIndex>();
        break;
      case blkif::Lookup::array:
        break;
    }
  }
  [[nodiscard]] PersistentGrant* find(GrantRef gref, std::uint64_t& steps) {
    return std::visit([&](auto& index) { return index.find(gref, steps); }, index_);
  }
  void insert(PersistentGrant& grant) {
    std::visit([&](auto& index) { index.insert(grant); }, index_);
  }
  void erase(PersistentGrant& grant) {
    std::visit([&](auto& index) { index.erase(grant); }, index_);
  }

 private:
  std::variant<ArrayIndex, ListIndex, TreeIndex> index_;
};

}  // namespace xblk::blkback
