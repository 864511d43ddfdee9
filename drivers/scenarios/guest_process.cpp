#include "drivers/scenarios/guest_process.hpp"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "drivers/base/check.hpp"

namespace xblk::scenarios {
namespace {

constexpr char kReady = '!';
// Of a drain, in turns of 1 ms: what is in flight ends, unless it hangs.
constexpr int kDrainTurnsMax = 20000;

std::string load_channels(blkfront::BlockDevice& device, const GuestLoad& options, GuestProcess::Parent& parent) {
  std::vector<std::unique_ptr<blkfront::Channel>> channels;
  std::vector<std::unique_ptr<Workload>> loads;
  const std::uint64_t part = options.length.value() / options.channels;
  for (unsigned c = 0; c < options.channels; ++c) {
    auto channel = device.open_channel(c);
    if (!channel) return channel.error().message;
    channels.push_back(std::move(*channel));
    const Workload::Options own{.depth = options.depth,
                                .first = options.first + Sectors(c * part),
                                .length = Sectors(part),
                                .discards = options.discards,
                                .barriers = options.barriers,
                                .flush_one_in = options.flush_one_in};
    loads.push_back(std::make_unique<Workload>(device, *channels.back(), own, options.seed + c));
  }
  parent.say_ready();
  while (!parent.wants_stop()) {
    for (auto& load : loads) load->turn();
    if (options.pause.count() > 0) std::this_thread::sleep_for(options.pause);
  }
  for (auto& load : loads) load->drain();
  std::string report;
  for (auto& load : loads) {
    for (int i = 0; load->in_flight() > 0 && i < kDrainTurnsMax; ++i) {
      load->turn();
      if (load->in_flight() > 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    if (load->completed() == 0 || load->in_flight() + load->mismatches() + load->errors() > 0) {
      report += fmt::format("completed {}, in flight {}, mismatches {}, errors {} ({}); ", load->completed(),
                            load->in_flight(), load->mismatches(), load->errors(), load->last_error());
    }
  }
  return report;
}

}  // namespace

void GuestProcess::Parent::say_ready() {
  XBLK_CHECK(::write(to_parent_, &kReady, 1) == 1, "the parent waits for it");
}

bool GuestProcess::Parent::wants_stop() const {
  pollfd state{from_parent_, POLLIN, 0};
  return ::poll(&state, 1, 0) > 0;
}

GuestProcess::GuestProcess(const Life& life) {
  int up[2];
  int down[2];
  XBLK_CHECK(::pipe2(up, O_CLOEXEC) == 0 && ::pipe2(down, O_CLOEXEC) == 0, "pipes for a guest");
  pid_ = ::fork();
  XBLK_CHECK(pid_ >= 0, "a process for a guest");
  if (pid_ == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    ::close(up[0]);
    ::close(down[1]);
    Parent parent(up[1], down[0]);
    const std::string report = life(parent);
    // No destructor of the test may run here: its host is the parent's.
    ::_exit(::write(up[1], report.data(), report.size()) == static_cast<ssize_t>(report.size()) ? 0 : 1);
  }
  ::close(up[1]);
  ::close(down[0]);
  from_guest_ = UniqueFd(up[0]);
  to_guest_ = UniqueFd(down[1]);
}

GuestProcess::GuestProcess(GuestProcess&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)),
      from_guest_(std::move(other.from_guest_)),
      to_guest_(std::move(other.to_guest_)) {}

GuestProcess::~GuestProcess() {
  kill();
}

bool GuestProcess::wait_until_ready() {
  char byte = 0;
  return ::read(from_guest_.get(), &byte, 1) == 1 && byte == kReady;
}

std::string GuestProcess::stop() {
  // Not by closing the pipe: guests that were forked later hold this end, too.
  static_cast<void>(::write(to_guest_.get(), &kReady, 1));  // one that has ended reads nothing
  return wait_for_end();
}

std::string GuestProcess::wait_for_end() {
  std::string report;
  char part[256];
  for (ssize_t n = 0; (n = ::read(from_guest_.get(), part, sizeof part)) > 0;) {
    report.append(part, static_cast<std::size_t>(n));
  }
  int status = 0;
  ::waitpid(std::exchange(pid_, -1), &status, 0);
  // A sanitizer that found something in the guest says so by the status.
  if (WIFEXITED(status) && WEXITSTATUS(status) != 0) report += fmt::format(" exit status {}", WEXITSTATUS(status));
  if (WIFSIGNALED(status)) report += fmt::format(" killed by signal {}", WTERMSIG(status));
  return report;
}

void GuestProcess::kill() {
  if (pid_ < 0) return;
  ::kill(pid_, SIGKILL);
  ::waitpid(std::exchange(pid_, -1), nullptr, 0);
}

GuestProcess::Life life_under_load(const EmuRig& rig, DomId guest, const GuestLoad& load) {
  return [options = rig.options(guest), load](GuestProcess::Parent& parent) -> std::string {
    auto device = apps::EmuFrontend::open(options);
    if (!device) return device.error().message;
    std::string report = load_channels(**device, load, parent);
    if (auto closed = (*device)->disconnect(); !closed) report += closed.error().message;
    return report;
  };
}

}  // namespace xblk::scenarios
