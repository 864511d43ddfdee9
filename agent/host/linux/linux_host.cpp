#include "agent/host/linux/linux_host.hpp"

#include <algorithm>
#include <cerrno>
#include <ctime>
#include <vector>

#include <poll.h>
#include <sys/random.h>

#include "agent/host/fingerprint.hpp"
#include "agent/host/linux/linux_process.hpp"
#include "drivers/base/check.hpp"

namespace xblk::host {
namespace {

class LinuxHost final : public Host {
 public:
  explicit LinuxHost(SignalWatch signals) : signals_(std::move(signals)) {}

  Instant now() override {
    timespec t{};
    ::clock_gettime(CLOCK_MONOTONIC, &t);
    return Instant(t.tv_sec * 1'000'000'000LL + t.tv_nsec);
  }
  std::int64_t unix_time_seconds() override { return ::time(nullptr); }
  std::uint64_t random_seed() override { return entropy(); }

  Result<std::unique_ptr<Process>> spawn(const ProcessSpec& spec) override {
    auto process = LinuxProcess::spawn(spec);
    if (!process) return tl::unexpected(process.error());
    return std::unique_ptr<Process>(*std::move(process));
  }

  Wake wait(std::span<Process* const> processes, Instant deadline) override;

  SignalState signals() override { return seen_ = signals_.poll(); }
  Result<Interrupts> interrupts() override { return read_interrupts(); }
  nlohmann::json fingerprint() override { return host::fingerprint(); }

 private:
  SignalWatch signals_;
  SignalState seen_;  // what the caller was last told
};

Wake LinuxHost::wait(std::span<Process* const> processes, Instant deadline) {
  std::vector<LinuxProcess*> running;
  for (Process* process : processes) {
    auto* own = dynamic_cast<LinuxProcess*>(process);
    XBLK_CHECK(own != nullptr, "a process of another host");
    if (own->end_fd() >= 0) running.push_back(own);
  }
  if (running.empty() && !processes.empty()) return Wake::kExited;
  for (;;) {
    if (const SignalState state = signals_.poll(); state != seen_) {
      seen_ = state;
      return Wake::kSignal;
    }
    std::vector<pollfd> fds{{signals_.fd(), POLLIN, 0}};
    for (LinuxProcess* process : running) {
      if (process->status()) return Wake::kExited;
      for (const int fd : {process->end_fd(), process->output_fd(), process->error_fd()})
        fds.push_back({fd, POLLIN, 0});
    }
    const std::int64_t left = deadline == Instant::never() ? INT64_MAX : (deadline - now()).value();
    if (left <= 0) return Wake::kDeadline;
    ::poll(fds.data(), fds.size(), static_cast<int>(std::min<std::int64_t>(left / 1'000'000 + 1, 60'000)));
  }
}

}  // namespace

Result<std::unique_ptr<Host>> create_linux_host() {
  auto signals = SignalWatch::create();
  if (!signals) return tl::unexpected(signals.error());
  return std::unique_ptr<Host>(std::make_unique<LinuxHost>(*std::move(signals)));
}

std::uint64_t entropy() {
  std::uint64_t seed = 0;
  while (::getrandom(&seed, sizeof seed, 0) != static_cast<ssize_t>(sizeof seed)) {
    XBLK_CHECK(errno == EINTR, "getrandom of 8 bytes fails only by interruption");
  }
  return seed;
}

}  // namespace xblk::host
