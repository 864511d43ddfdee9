// The whole system in one process and in virtual time: guests' frontends and dom0's backends on the emulated
// hypervisor, stepped in an order drawn from a seed. Same seed, same run.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "drivers/base/prng.hpp"
#include "drivers/blkback/manager.hpp"
#include "drivers/blkfront/device.hpp"
#include "drivers/env/virtual/memory_store.hpp"
#include "drivers/env/virtual/virtual_env.hpp"
#include "drivers/hypervisor/dom0.hpp"
#include "drivers/hypervisor/hypervisor.hpp"
#include "drivers/hypervisor/in_process_guest.hpp"

namespace xblk::scenarios {

struct ModelPlatform {
  using Env = env::VirtualEnv;
  using Front = hypervisor::InProcessGuest<Env>;
  using Back = hypervisor::Dom0<Env>;
  using Keys = env::MemoryKeys;
};
static_assert(platform::Platform<ModelPlatform>);

// Rings wait here instead of on a worker thread; the rig steps them.
class RingList final : public blkback::RingRunner<env::VirtualEnv::Waitable> {
 public:
  void attach(blkback::RingStep& ring, env::VirtualEnv::Waitable, const env::VirtualEnv::Waitable*) override {
    rings.push_back(&ring);
  }
  void detach(blkback::RingStep& ring) override {
    while (!ring.idle()) ring.step(0);
    std::erase(rings, &ring);
  }
  void wake() override {}  // nobody sleeps: the rig steps every ring
  std::vector<blkback::RingStep*> rings;
};

struct VbdOptions {
  std::string store = "ram:4MiB";
  blkif::PolicyMap front_policy;
  blkif::PolicyMap back_policy;
  std::string mode = "w";
};

class ModelRig {
 public:
  explicit ModelRig(std::uint64_t seed, hypervisor::HypervisorConfig config = {});
  ~ModelRig();

  // Creates domain and vbd as a toolstack would, and the frontend on it (not yet connected).
  blkfront::Device<ModelPlatform>& add_guest(DomId domain, const VbdOptions& options);
  // The same without a frontend: the test plays it, on guest() and guest_keys().
  void add_bare_guest(DomId domain, const VbdOptions& options);
  // One turn of everything, in a seeded order.
  void turn();
  // Turns until `done` or `turns_max`; false when it did not happen.
  [[nodiscard]] bool run_until(const std::function<bool()>& done, int turns_max = 10000);
  // Ends the backend drivers and starts them anew, beside connected frontends.
  Status restart_backends();
  // Ends the guest as a crash does: no goodbye.
  void kill_guest(DomId domain);

  [[nodiscard]] hypervisor::HypervisorUsage usage() { return hypervisor_.usage(); }
  [[nodiscard]] blkback::Manager<ModelPlatform>& backends() { return manager_; }
  [[nodiscard]] env::MemoryKeys& dom0_keys() { return keys_; }
  [[nodiscard]] env::VirtualEnv& env() { return env_; }
  [[nodiscard]] hypervisor::InProcessGuest<env::VirtualEnv>& guest(DomId domain);
  [[nodiscard]] env::MemoryKeys& guest_keys(DomId domain);
  [[nodiscard]] static std::string frontend_path(DomId domain);
  [[nodiscard]] static std::string backend_path(DomId domain);
  [[nodiscard]] Prng& random() { return random_; }
  [[nodiscard]] std::vector<std::string>& log() { return log_; }

 private:
  struct Guest {
    std::unique_ptr<env::MemoryKeys> keys;
    std::unique_ptr<hypervisor::InProcessGuest<env::VirtualEnv>> hypervisor;
    std::unique_ptr<blkfront::Device<ModelPlatform>> device;
  };

  Prng random_;
  env::VirtualEnv env_;
  hypervisor::Hypervisor<env::VirtualEnv> hypervisor_;
  hypervisor::Dom0<env::VirtualEnv> dom0_;
  env::MemoryStore tree_;
  env::MemoryKeys keys_;
  RingList rings_;
  std::vector<std::string> log_;
  blkback::DeviceContext<ModelPlatform> context_;
  blkback::Manager<ModelPlatform> manager_;
  std::map<DomId, Guest> guests_;
};

}  // namespace xblk::scenarios
