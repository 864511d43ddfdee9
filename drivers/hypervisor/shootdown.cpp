#include "drivers/hypervisor/shootdown.hpp"

#include <pthread.h>
#include <sched.h>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include <array>
#include <atomic>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <sstream>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "drivers/env/real/real_env.hpp"
#include "drivers/hypervisor/dom0.hpp"
#include "drivers/hypervisor/hypervisor.hpp"
#include "drivers/hypervisor/in_process_guest.hpp"

namespace xblk::hypervisor {
namespace {

constexpr std::uint32_t kGuestPages = 64;

std::string read_interrupts() {
  std::ifstream file("/proc/interrupts");
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

std::vector<int> allowed_cpus() {
  cpu_set_t set;
  CPU_ZERO(&set);
  ::sched_getaffinity(0, sizeof set, &set);
  std::vector<int> cpus;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &set)) cpus.push_back(cpu);
  }
  return cpus;
}

void pin_to(int cpu) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(cpu, &set);
  ::pthread_setaffinity_np(::pthread_self(), sizeof set, &set);
}

// Runs on its CPU for as long as a phase wants it to, and sleeps otherwise.
class Spinner {
 public:
  explicit Spinner(int cpu) : thread_([this, cpu] { run(cpu); }) {}
  ~Spinner() {
    wanted_ = State::stop;
    wanted_.notify_one();
    thread_.join();
  }
  void spin() {
    wanted_ = State::spin;
    wanted_.notify_one();
    while (actual_ != State::spin) std::this_thread::yield();
  }
  void sleep() {
    wanted_ = State::sleep;
    while (actual_ != State::sleep) std::this_thread::yield();
  }
  [[nodiscard]] Nanos cpu() const { return Nanos(cpu_ns_.load()); }

 private:
  enum class State : std::uint8_t { sleep, spin, stop };

  void run(int cpu) {
    pin_to(cpu);
    env::RealEnv env;
    for (;;) {
      actual_ = State::sleep;
      wanted_.wait(State::sleep);
      if (wanted_ == State::stop) return;
      const Nanos before = env.thread_cpu();
      actual_ = State::spin;
      while (wanted_ == State::spin) env.relax();
      cpu_ns_ += (env.thread_cpu() - before).value();
    }
  }
  std::atomic<State> wanted_{State::sleep};
  std::atomic<State> actual_{State::sleep};
  std::atomic<std::int64_t> cpu_ns_{0};
  std::thread thread_;
};

class Mapper {
 public:
  Mapper() {
    guest_ = std::move(*InProcessGuest<env::RealEnv>::create(hypervisor_, DomId(1), kGuestPages));
    const auto block = *guest_->allocate_pages(kDom0, kGuestPages);
    for (std::uint32_t i = 0; i < kGuestPages; ++i) {
      const FrameNumber frame(block.first_frame.value() + i);
      grefs_.push_back(*guest_->grant(kDom0, frame, platform::Access::read_write));
    }
  }

  void run(std::uint32_t unmaps, ShootdownPhase& phase) {
    platform::LockWait wait;
    const std::uint64_t before = *tlb_shootdowns(read_interrupts());
    const Instant start = env_.now();
    for (std::uint32_t i = 0; i < unmaps; ++i) {
      platform::MapOp map;
      map.gref = grefs_[i % kGuestPages];
      dom0_.map(DomId(1), {&map, 1}, wait);
      if (map.status != platform::GrantStatus::okay) continue;
      map.address[0] = std::byte{1};  // the translation is in this CPU's TLB
      platform::UnmapOp unmap{map.handle, map.address};
      dom0_.unmap({&unmap, 1}, wait);
      ++phase.unmaps;
    }
    phase.elapsed += env_.now() - start;
    phase.interrupts += *tlb_shootdowns(read_interrupts()) - before;
  }

 private:
  env::RealEnv env_;
  Hypervisor<env::RealEnv> hypervisor_{env_};
  Dom0<env::RealEnv> dom0_{hypervisor_};
  std::unique_ptr<InProcessGuest<env::RealEnv>> guest_;
  std::vector<GrantRef> grefs_;
};

}  // namespace

std::optional<std::uint64_t> tlb_shootdowns(std::string_view proc_interrupts) {
  std::istringstream lines{std::string(proc_interrupts)};
  for (std::string line; std::getline(lines, line);) {
    std::istringstream fields(line);
    std::string name;
    if (!(fields >> name) || name != "TLB:") continue;
    std::uint64_t sum = 0;
    for (std::uint64_t count = 0; fields >> count;) sum += count;
    return sum;
  }
  return std::nullopt;
}

double ShootdownPhase::interrupts_per_unmap() const {
  return unmaps == 0 ? 0 : static_cast<double>(interrupts) / static_cast<double>(unmaps);
}
double ShootdownPhase::ns_per_unmap() const {
  return unmaps == 0 ? 0 : static_cast<double>(elapsed.value()) / static_cast<double>(unmaps);
}

ShootdownHost this_host() {
  ShootdownHost host;
  host.cpus_allowed = static_cast<int>(allowed_cpus().size());
#if defined(__x86_64__)
  constexpr unsigned kInvlpgb = 1u << 3;      // CPUID 8000_0008h EBX
  constexpr unsigned kPvTlbFlush = 1u << 9;   // KVM CPUID 4000_0001h EAX
  constexpr unsigned kHypervisor = 1u << 31;  // CPUID 1 ECX
  constexpr unsigned kKvmK = 0x4b4d564b;      // "KVMK" of the signature KVMKVMKVM
  std::array<unsigned, 4> r{};
  if (__get_cpuid(0x80000008, &r[0], &r[1], &r[2], &r[3]) != 0) host.broadcast_invalidation = (r[1] & kInvlpgb) != 0;
  if (__get_cpuid(1, &r[0], &r[1], &r[2], &r[3]) != 0 && (r[2] & kHypervisor) != 0) {
    __cpuid(0x40000000, r[0], r[1], r[2], r[3]);
    if (r[1] == kKvmK) {
      __cpuid(0x40000001, r[0], r[1], r[2], r[3]);
      host.paravirtual_flush = (r[0] & kPvTlbFlush) != 0;
    }
  }
#endif
  return host;
}

Result<ShootdownResult> measure_shootdowns(std::uint32_t rounds, std::uint32_t unmaps) {
  ShootdownResult result;
  result.host = this_host();
  const std::vector<int> cpus = allowed_cpus();
  if (cpus.size() < 2) return fail(ENOTSUP, "shootdowns need two CPUs, this process may use one");
  if (!tlb_shootdowns(read_interrupts())) {
    return fail(ENOTSUP, "/proc/interrupts has no TLB row: this kernel does not count TLB shootdowns");
  }
  // On a thread of its own, so that the caller's CPU affinity stays as it is.
  std::thread measuring([&] {
    pin_to(cpus[0]);
    Mapper mapper;
    Spinner spinner(cpus[1]);
    for (std::uint32_t round = 0; round < rounds; ++round) {
      mapper.run(unmaps, result.alone);
      spinner.spin();
      mapper.run(unmaps, result.with_second);
      spinner.sleep();
    }
    result.with_second.spinner_cpu = spinner.cpu();
  });
  measuring.join();
  return result;
}

std::vector<std::string> explain(const ShootdownResult& result) {
  const ShootdownPhase& phase = result.with_second;
  if (phase.interrupts_per_unmap() >= kExpectedInterruptsPerUnmap) return {};
  std::vector<std::string> reasons;
  if (result.host.broadcast_invalidation) {
    reasons.emplace_back("the CPU has INVLPGB: kernels that use it flush other CPUs' TLBs without an interrupt");
  }
  const double share = phase.elapsed.value() == 0 ? 0
                                                  : static_cast<double>(phase.spinner_cpu.value()) /
                                                        static_cast<double>(phase.elapsed.value());
  if (share < 0.9) {
    reasons.push_back(
        fmt::format("load: the second thread ran {:.0f}% of the time; while another process has its CPU, "
                    "an unmap here needs no interrupt there",
                    share * 100));
  }
  if (result.host.paravirtual_flush) {
    reasons.emplace_back("KVM's paravirtual TLB flush is on: a vCPU that the host has descheduled gets no interrupt");
  }
  if (reasons.empty()) reasons.emplace_back("no known reason; compare ns per unmap of the two phases");
  return reasons;
}

}  // namespace xblk::hypervisor
