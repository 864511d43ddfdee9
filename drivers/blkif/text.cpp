#include "drivers/blkif/text.hpp"

#include <fmt/format.h>

namespace xblk::blkif {

std::string quoted(std::string_view text) {
  constexpr std::size_t kShown = 40;
  std::string out = "\"";
  for (const char c : text.substr(0, kShown)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte >= 0x7f || c == '"' || c == '\\') {
      out += fmt::format("\\x{:02x}", byte);
    } else {
      out += c;
    }
  }
  out += text.size() > kShown ? "...\"" : "\"";
  return out;
}

}  // namespace xblk::blkif
