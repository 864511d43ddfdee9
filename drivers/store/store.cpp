#include "drivers/store/store.hpp"

#include <cerrno>

#include "drivers/store/null_store.hpp"
#include "drivers/store/ram_store.hpp"

namespace xblk::store {

Result<std::unique_ptr<Store>> open_store(const std::string& specification) {
  const auto parsed = parse_specification(specification);
  if (!parsed) return tl::unexpected(parsed.error());
  if (!parsed->links.empty()) return fail(ENOSYS, "throttled stores are not built yet");
  switch (parsed->kind) {
    case Specification::Kind::null:
      return make_null_store(parsed->size);
    case Specification::Kind::ram:
      return make_ram_store(parsed->size);
    case Specification::Kind::file:
      break;
  }
  return fail(ENOSYS, "file stores are not built yet");
}

}  // namespace xblk::store
