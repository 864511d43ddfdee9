#include "agent/host/files.hpp"
#include "agent/report/results.hpp"

namespace xblk::report {
namespace {

// Results of a large matrix are a few MiB; a file beyond this was not written by xblk.
constexpr std::size_t kResultsBytesMax = std::size_t{256} << 20;

}  // namespace

Status write_results(const std::string& path, const Results& results) {
  // fio and peers may hand us bytes that are not UTF-8; they are replaced, so that the file is always valid JSON.
  return host::write_file_atomically(path, to_json(results).dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
}

Result<Results> load_results(const std::string& path) {
  const auto text = host::read_file(path, kResultsBytesMax);
  if (!text) return tl::unexpected(text.error());
  return from_json(*text, path);
}

}  // namespace xblk::report
