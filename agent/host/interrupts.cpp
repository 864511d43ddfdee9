#include "agent/host/interrupts.hpp"

#include <charconv>
#include <numeric>

#include <fmt/format.h>

#include "agent/host/files.hpp"

namespace xblk::host {
namespace {

constexpr std::size_t kInterruptsLimit = std::size_t{16} << 20;  // 512 CPUs x 2,000 rows fit

std::vector<std::string_view> words(std::string_view line) {
  std::vector<std::string_view> found;
  for (std::size_t at = line.find_first_not_of(" \t"); at != std::string_view::npos;) {
    const std::size_t end = line.find_first_of(" \t", at);
    found.push_back(line.substr(at, end - at));
    at = line.find_first_not_of(" \t", end);
  }
  return found;
}

std::optional<std::uint64_t> number(std::string_view word) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
  if (error != std::errc{} || end != word.data() + word.size()) return std::nullopt;
  return value;
}

}  // namespace

std::optional<std::uint64_t> Interrupts::sum(const std::string& row) const {
  const auto it = rows.find(row);
  if (it == rows.end()) return std::nullopt;
  return std::accumulate(it->second.begin(), it->second.end(), std::uint64_t{0});
}

Result<Interrupts> parse_interrupts(std::string_view text) {
  Interrupts result;
  std::size_t at = 0;
  while (at < text.size()) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    const auto cells = words(text.substr(at, end - at));
    at = end + 1;
    if (cells.empty()) continue;
    if (result.cpus.empty()) {
      if (!cells[0].starts_with("CPU")) return fail(EINVAL, "/proc/interrupts: the first line names no CPU");
      result.cpus.assign(cells.begin(), cells.end());
      continue;
    }
    if (!cells[0].ends_with(':')) continue;
    // Counts end where the description begins; ERR and MIS have one column whatever the number of CPUs.
    std::vector<std::uint64_t> counts;
    for (std::size_t i = 1; i < cells.size() && counts.size() < result.cpus.size(); ++i) {
      const auto count = number(cells[i]);
      if (!count) break;
      counts.push_back(*count);
    }
    result.rows.insert_or_assign(std::string(cells[0].substr(0, cells[0].size() - 1)), std::move(counts));
  }
  if (result.cpus.empty()) return fail(EINVAL, "/proc/interrupts: empty");
  return result;
}

Result<Interrupts> read_interrupts(const std::filesystem::path& file) {
  auto text = read_file(file, kInterruptsLimit);
  if (!text) return tl::unexpected(text.error());
  return parse_interrupts(*text);
}

Result<Nanos> process_cpu_time(pid_t pid, const std::filesystem::path& proc) {
  const auto tasks = proc / std::to_string(pid) / "task";
  std::error_code error;
  std::int64_t total = 0;
  bool any = false;
  for (std::filesystem::directory_iterator it(tasks, error), end; !error && it != end; it.increment(error)) {
    const auto text = read_file(it->path() / "schedstat", 256);
    if (!text) continue;  // the thread ended meanwhile
    const auto cells = words(*text);
    const auto ns = cells.empty() ? std::nullopt : number(cells[0]);
    if (!ns) return fail(EINVAL, fmt::format("{}: no CPU time in schedstat", it->path().string()));
    total += static_cast<std::int64_t>(*ns);
    any = true;
  }
  if (!any)
    return fail(ESRCH, fmt::format("process {} has no readable schedstat (ended, or CONFIG_SCHED_INFO is off)", pid));
  return Nanos(total);
}

}  // namespace xblk::host
