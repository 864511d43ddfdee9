// xblk-emu-host: the emulated Xen host as a foreground process. `xblk run` and `xblk emu up` start it; by hand it is
// useful under a debugger.
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <cstdio>
#include <map>
#include <thread>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "drivers/apps/emu_host/emu_host.hpp"
#include "drivers/hypervisor/emu/process_limits.hpp"

namespace {

constexpr int kExitOk = 0;
constexpr int kExitUsage = 2;
constexpr int kExitEnvironment = 5;

// Blocked before any thread exists, so that all threads inherit it and only the control loop sees the signals.
int block_signals() {
  sigset_t signals;
  ::sigemptyset(&signals);
  ::sigaddset(&signals, SIGINT);
  ::sigaddset(&signals, SIGTERM);
  ::sigaddset(&signals, SIGHUP);
  ::sigaddset(&signals, SIGUSR1);
  ::sigprocmask(SIG_BLOCK, &signals, nullptr);
  ::signal(SIGPIPE, SIG_IGN);
  ::signal(SIGXFSZ, SIG_IGN);  // a file store at RLIMIT_FSIZE: that request fails with EFBIG, not the host
  return ::signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK);
}

// Half of the CPUs: the other half is for the guests.
unsigned default_workers() {
  return std::max(1u, std::thread::hardware_concurrency() / 2);
}

}  // namespace

int main(int argc, char** argv) {
  xblk::apps::HostOptions options;
  options.workers = default_workers();
  bool die_with_parent = false;
  CLI::App app(
      "The emulated Xen host: hypervisor, xenstored and the reference backends of dom0.\n"
      "Prints 'ready' when guests can attach; ends orderly on SIGTERM. On SIGUSR1 the backend drivers are started\n"
      "anew and take over the live rings, as after an upgrade or a crash of dom0's daemon.");
  app.add_option("--dir", options.directory, "Directory for sockets, statistics and the log of xenstored")->required();
  app.add_option("--guests", options.guests, "Domains to introduce, numbered from 1")->check(CLI::Range(1, 64));
  app.add_option("--workers", options.workers, "Backend worker threads (default: half of the CPUs)")
      ->check(CLI::Range(1, 256));
  app.add_option("--grant-locks", options.grant_locks, "Locking of the grant tables: coarse or split (default)")
      ->transform(CLI::CheckedTransformer(std::map<std::string, xblk::hypervisor::GrantLocks>{
          {"coarse", xblk::hypervisor::GrantLocks::coarse}, {"split", xblk::hypervisor::GrantLocks::split}}));
  app.add_option("--guest-memory", options.guest_memory_mib, "Memory that a guest may ask for at most, in MiB")
      ->check(CLI::Range(1, 65536));
  app.add_option("--max-grant-frames", options.grant_frames, "Grant-table frames of a guest, of 512 grants each")
      ->check(CLI::Range(1u, xblk::hypervisor::kMaxGrantFrames));
  app.add_option("--max-mappings", options.mappings_max,
                 "Pages of guests that the backends may hold mapped (default: what vm.max_map_count leaves)")
      ->check(CLI::Range(1u, xblk::hypervisor::kMaptrackLimitMax));
  app.add_flag("--die-with-parent", die_with_parent, "End when the process that started this one ends");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? kExitOk : kExitUsage;
  }
  const pid_t parent = ::getppid();
  if (die_with_parent) ::prctl(PR_SET_PDEATHSIG, SIGTERM);
  const int signal_fd = block_signals();
  if (auto raised = xblk::hypervisor::emu::raise_descriptor_limit(); !raised) {
    fmt::print(stderr, "xblk-emu-host: {}\n", raised.error().message);
  }
  if (die_with_parent && ::getppid() != parent) return kExitOk;  // it ended before prctl took effect

  auto host = xblk::apps::EmuHost::start(options);
  if (!host) {
    fmt::print(stderr, "xblk-emu-host: {}\n", host.error().message);
    return kExitEnvironment;
  }
  fmt::print("ready\n");
  std::fflush(stdout);
  if (auto ended = (*host)->run(signal_fd); !ended) {
    fmt::print(stderr, "xblk-emu-host: {}\n", ended.error().message);
    return kExitEnvironment;
  }
  return kExitOk;
}
