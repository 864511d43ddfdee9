#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "agent/fio/verdict.hpp"

// No output of fio, however damaged, crashes the reader; and what is judged ok has the I/O that was asked for.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace xblk::fio;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const FioResult result = read_result(text, text, text);
  const Verdict verdict = judge({}, result, {.ways = {Way::kRead}, .block_size = xblk::Bytes(4096)});
  if (verdict.outcome != Outcome::kOk) {
    if (verdict.reason.empty() || verdict.reason.find('\n') != std::string::npos) std::abort();
    return 0;
  }
  const auto read = result.sum(Way::kRead);
  if (!read || read->total_ios == 0 || read->io_bytes == 0 || !(read->iops() > 0)) std::abort();
  return 0;
}
