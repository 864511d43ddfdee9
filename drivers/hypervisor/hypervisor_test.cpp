// The conformance suite on every platform that the emulated hypervisor makes.
#include "drivers/hypervisor/hypervisor.hpp"

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "drivers/env/real/real_env.hpp"
#include "drivers/env/virtual/virtual_env.hpp"
#include "drivers/hypervisor/dom0.hpp"
#include "drivers/hypervisor/in_process_guest.hpp"
#include "drivers/platform/conformance/conformance.hpp"

namespace xblk::hypervisor {
namespace {

template <class E, GrantLocks kLocks>
class InProcessRig {
 public:
  using Env = E;
  using Front = InProcessGuest<Env>;
  using Back = Dom0<Env>;
  static constexpr bool kScatteredRings = std::is_same_v<Env, env::RealEnv>;
  static std::string unavailable() { return ""; }

  InProcessRig() : hypervisor_(env_, {.grant_locks = kLocks}), back_(hypervisor_) {
    front_ = std::move(*Front::create(hypervisor_, DomId(3), 256));
  }
  Env& env() { return env_; }
  Front& front() { return *front_; }
  Back& back() { return back_; }
  std::string leaks() {
    const HypervisorUsage usage = hypervisor_.usage();
    if (usage == HypervisorUsage{.domains = 1}) return "";
    return fmt::format("{} ports, {} mappings, {} active grants", usage.ports, usage.mappings, usage.active_grants);
  }

 private:
  Env env_;
  Hypervisor<Env> hypervisor_;
  Back back_;
  std::unique_ptr<Front> front_;
};

}  // namespace
}  // namespace xblk::hypervisor

namespace xblk::platform {

using InProcessRigs = ::testing::Types<hypervisor::InProcessRig<env::RealEnv, hypervisor::GrantLocks::coarse>,
                                       hypervisor::InProcessRig<env::RealEnv, hypervisor::GrantLocks::split>,
                                       hypervisor::InProcessRig<env::VirtualEnv, hypervisor::GrantLocks::coarse>,
                                       hypervisor::InProcessRig<env::VirtualEnv, hypervisor::GrantLocks::split>>;
INSTANTIATE_TYPED_TEST_SUITE_P(InProcess, Conformance, InProcessRigs);

}  // namespace xblk::platform
