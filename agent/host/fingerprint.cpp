#include "agent/host/fingerprint.hpp"

#include <cstring>
#include <optional>
#include <sstream>
#include <string>

#if defined(__x86_64__) || defined(__i386__)
#include <cpuid.h>
#endif

#include "agent/host/files.hpp"

namespace xblk::host {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr std::size_t kFactLimit = std::size_t{4} << 20;

std::string trimmed(std::string text) {
  const auto last = text.find_last_not_of(" \t\r\n");
  text.erase(last == std::string::npos ? 0 : last + 1);
  const auto first = text.find_first_not_of(" \t\r\n");
  return first == std::string::npos ? std::string() : text.substr(first);
}

// The facts of one machine, read below `root`.
class Facts {
 public:
  explicit Facts(fs::path root) : root_(std::move(root)) {}

  [[nodiscard]] std::optional<std::string> text(const char* path) const {
    auto content = read_file(root_ / path, kFactLimit);
    if (!content) return std::nullopt;
    return trimmed(*std::move(content));
  }

  [[nodiscard]] bool exists(const char* path) const {
    std::error_code ignored;
    return fs::exists(root_ / path, ignored);
  }

  // First "key<separator>value" line of a file.
  [[nodiscard]] std::optional<std::string> field(const char* path, const std::string& key, char separator) const {
    const auto content = text(path);
    if (!content) return std::nullopt;
    std::istringstream lines(*content);
    for (std::string line; std::getline(lines, line);) {
      const auto at = line.find(separator);
      if (at != std::string::npos && trimmed(line.substr(0, at)) == key) return trimmed(line.substr(at + 1));
    }
    return std::nullopt;
  }

  [[nodiscard]] json directory(const char* path) const {
    json found = json::object();
    std::error_code error;
    for (fs::directory_iterator it(root_ / path, error), end; !error && it != end; it.increment(error)) {
      auto content = read_file(it->path(), kFactLimit);
      if (content) found[it->path().filename().string()] = trimmed(*std::move(content));
    }
    return found;
  }

 private:
  fs::path root_;
};

void put(json& object, const char* key, const std::optional<std::string>& value) {
  if (value && !value->empty()) object[key] = *value;
}

void put_number(json& object, const char* key, const std::optional<std::string>& value) {
  if (!value) return;
  char* end = nullptr;
  const long long number = std::strtoll(value->c_str(), &end, 10);
  if (end != value->c_str()) object[key] = number;
}

void put_switch(json& object, const char* key, const std::optional<std::string>& value) {
  if (value == "0" || value == "1") object[key] = (value == "1");
}

json cpu_facts(const Facts& facts) {
  json cpu = json::object();
  put(cpu, "model", facts.field("proc/cpuinfo", "model name", ':'));
  put(cpu, "microcode", facts.field("proc/cpuinfo", "microcode", ':'));
  put(cpu, "online", facts.text("sys/devices/system/cpu/online"));
  put_switch(cpu, "smt_active", facts.text("sys/devices/system/cpu/smt/active"));
  put(cpu, "governor", facts.text("sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"));
  put_switch(cpu, "boost", facts.text("sys/devices/system/cpu/cpufreq/boost"));
  // intel_pstate states the opposite.
  const auto no_turbo = facts.text("sys/devices/system/cpu/intel_pstate/no_turbo");
  if (no_turbo == "0" || no_turbo == "1") cpu["boost"] = (no_turbo == "0");
  put(cpu, "idle_driver", facts.text("sys/devices/system/cpu/cpuidle/current_driver"));
  put(cpu, "numa_nodes", facts.text("sys/devices/system/node/online"));
  return cpu;
}

// Options that carry an address or a name of the machine are left out.
std::optional<std::string> kernel_command_line(const Facts& facts) {
  const auto line = facts.text("proc/cmdline");
  if (!line) return std::nullopt;
  std::istringstream words(*line);
  std::string kept;
  for (std::string word; words >> word;) {
    if (word.starts_with("ip=") || word.find("hostname=") != std::string::npos) continue;
    kept += (kept.empty() ? "" : " ") + word;
  }
  return kept;
}

std::optional<std::string> cpuid_hypervisor_vendor() {
#if defined(__x86_64__) || defined(__i386__)
  unsigned a = 0;
  unsigned b = 0;
  unsigned c = 0;
  unsigned d = 0;
  if (__get_cpuid(1, &a, &b, &c, &d) == 0 || (c & (1U << 31)) == 0) return std::nullopt;  // bit 31: runs as a guest
  __cpuid(0x40000000, a, b, c, d);
  char vendor[13] = {};
  std::memcpy(vendor, &b, 4);
  std::memcpy(vendor + 4, &c, 4);
  std::memcpy(vendor + 8, &d, 4);
  return std::string(vendor);
#else
  return std::nullopt;
#endif
}

json virtualisation_facts(const Facts& facts, bool this_machine) {
  json found = json::object();
  if (const auto flags = facts.field("proc/cpuinfo", "flags", ':')) {
    found["runs_as_guest"] = (" " + *flags + " ").find(" hypervisor ") != std::string::npos;
  }
  if (this_machine) put(found, "vendor", cpuid_hypervisor_vendor());
  put(found, "type", facts.text("sys/hypervisor/type"));
  found["proc_xen"] = facts.exists("proc/xen");
  put(found, "xen_capabilities", facts.text("proc/xen/capabilities"));
  return found;
}

void put_load(json& object, const std::optional<std::string>& text) {
  if (!text) return;
  std::istringstream in(*text);
  double one = 0;
  double five = 0;
  double fifteen = 0;
  if (in >> one >> five >> fifteen) object["load_average"] = {one, five, fifteen};
}

}  // namespace

json fingerprint(const fs::path& root) {
  const Facts facts(root);
  json result = json::object();
  result["cpu"] = cpu_facts(facts);
  result["virtualisation"] = virtualisation_facts(facts, root == "/");

  json kernel = json::object();
  put(kernel, "release", facts.text("proc/sys/kernel/osrelease"));
  put(kernel, "version", facts.text("proc/sys/kernel/version"));
  put(kernel, "command_line", kernel_command_line(facts));
  put(kernel, "clocksource", facts.text("sys/devices/system/clocksource/clocksource0/current_clocksource"));
  put_number(kernel, "max_map_count", facts.text("proc/sys/vm/max_map_count"));
  if (auto mitigations = facts.directory("sys/devices/system/cpu/vulnerabilities"); !mitigations.empty()) {
    kernel["mitigations"] = std::move(mitigations);
  }
  result["kernel"] = std::move(kernel);

  if (auto distribution = facts.field("etc/os-release", "PRETTY_NAME", '=')) {
    std::erase(*distribution, '"');
    put(result, "distribution", distribution);
  }
  put_number(result, "memory_total_kib", facts.field("proc/meminfo", "MemTotal", ':'));
  put_load(result, facts.text("proc/loadavg"));
  return result;
}

}  // namespace xblk::host
