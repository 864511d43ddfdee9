// bench_shootdown: prints what measure_shootdowns() found, as text or JSON. Exit codes: 0 measured, 2 usage, 5 the
// machine cannot show it.
#include <fmt/format.h>
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <cstdint>
#include <cstdio>

#include "drivers/hypervisor/shootdown.hpp"

namespace {

using xblk::hypervisor::ShootdownPhase;
using xblk::hypervisor::ShootdownResult;

nlohmann::json to_json(const ShootdownPhase& phase) {
  return {{"unmaps", phase.unmaps},
          {"tlb_ipis", phase.interrupts},
          {"tlb_ipis_per_unmap", phase.interrupts_per_unmap()},
          {"ns_per_map_unmap", phase.ns_per_unmap()}};
}

void print_json(const ShootdownResult& result) {
  const nlohmann::json document = {{"alone", to_json(result.alone)},
                                   {"with_second_thread", to_json(result.with_second)},
                                   {"time_ratio", result.with_second.ns_per_unmap() / result.alone.ns_per_unmap()},
                                   {"reasons", explain(result)},
                                   {"scope", "system-wide interrupt counts; rounds of both phases alternate"}};
  fmt::print("{}\n", document.dump(2));
}

void print_text(const ShootdownResult& result) {
  const auto line = [](const char* name, const ShootdownPhase& phase) {
    fmt::print("{:<22} {:>7.3f} TLB IPIs per unmap  {:>8.0f} ns per map and unmap  ({} unmaps)\n", name,
               phase.interrupts_per_unmap(), phase.ns_per_unmap(), phase.unmaps);
  };
  line("second thread sleeps", result.alone);
  line("second thread runs", result.with_second);
  fmt::print("time ratio {:.2f}; IPI counts are system-wide\n",
             result.with_second.ns_per_unmap() / result.alone.ns_per_unmap());
  for (const auto& reason : explain(result)) {
    fmt::print("below {} IPIs per unmap because: {}\n", xblk::hypervisor::kExpectedInterruptsPerUnmap, reason);
  }
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{"TLB-shootdown interrupts per grant unmap on this machine"};
  std::uint32_t rounds = 20;
  std::uint32_t unmaps = 2000;
  bool json = false;
  app.add_option("--rounds", rounds, "alternating rounds of both phases")
      ->check(CLI::Range(1u, 10'000u))
      ->capture_default_str();
  app.add_option("--unmaps", unmaps, "unmaps in each round")->check(CLI::Range(1u, 10'000'000u))->capture_default_str();
  app.add_flag("--json", json, "print JSON");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  const auto result = xblk::hypervisor::measure_shootdowns(rounds, unmaps);
  if (!result) {
    fmt::print(stderr, "bench_shootdown: {}\n", result.error().message);
    return 5;
  }
  if (json) {
    print_json(*result);
  } else {
    print_text(*result);
  }
  return 0;
}
