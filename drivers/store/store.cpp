#include "drivers/store/store.hpp"

#include <utility>

#include "drivers/base/check.hpp"
#include "drivers/store/file_store.hpp"
#include "drivers/store/null_store.hpp"
#include "drivers/store/ram_store.hpp"
#include "drivers/store/throttled_store.hpp"

namespace xblk::store {
namespace {

Result<std::unique_ptr<Store>> open_innermost(const Specification& specification) {
  switch (specification.kind) {
    case Specification::Kind::null:
      return make_null_store(specification.size);
    case Specification::Kind::ram:
      return make_ram_store(specification.size);
    case Specification::Kind::file:
      return make_file_store(specification.path, specification.size);
  }
  XBLK_CHECK(false, "every kind is named above");
}

}  // namespace

Result<std::unique_ptr<Store>> open_store(const std::string& specification) {
  const auto parsed = parse_specification(specification);
  if (!parsed) return tl::unexpected(parsed.error());
  auto store = open_innermost(*parsed);
  for (auto link = parsed->links.rbegin(); store && link != parsed->links.rend(); ++link)
    store = make_throttled_store(*link, std::move(*store));
  return store;
}

}  // namespace xblk::store
