#include "drivers/blkif/wire.hpp"

#include <fmt/format.h>

#include "drivers/blkif/text.hpp"

namespace xblk::blkif {

Result<Abi> parse_protocol(std::optional<std::string_view> key) {
  if (!key || *key == kProtocolX86_32) return Abi::x86_32;
  if (*key == kProtocolX86_64) return Abi::x86_64;
  return fail(EPROTO, fmt::format("protocol = {}: unknown ring ABI; use {} or {}", quoted(*key), kProtocolX86_64,
                                  kProtocolX86_32));
}

std::string_view to_string(Op op) {
  switch (op) {
    case Op::read:
      return "read";
    case Op::write:
      return "write";
    case Op::write_barrier:
      return "write_barrier";
    case Op::flush_diskcache:
      return "flush_diskcache";
    case Op::discard:
      return "discard";
    case Op::indirect:
      return "indirect";
  }
  return "unknown";
}

std::string_view to_string(ResponseStatus status) {
  switch (status) {
    case ResponseStatus::okay:
      return "okay";
    case ResponseStatus::error:
      return "error";
    case ResponseStatus::not_supported:
      return "not_supported";
  }
  return "unknown";
}

}  // namespace xblk::blkif
