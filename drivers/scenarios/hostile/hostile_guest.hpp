// A hostile guest as a process of its own: negotiates like a good one, then attacks until its parent has seen enough.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "drivers/apps/emu_platform.hpp"
#include "drivers/peer/front_player.hpp"
#include "drivers/peer/scripted_front.hpp"
#include "drivers/scenarios/emu_rig.hpp"
#include "drivers/scenarios/guest_process.hpp"

namespace xblk::scenarios {

class HostileGuest {
 public:
  // In the guest's process; aborts it if the host does not let it in.
  HostileGuest(const EmuRig& rig, DomId domain);

  // Waits for the backend's state; false: it did not come.
  [[nodiscard]] bool wait_for_backend(const std::string& state);
  // From wherever it stands to Connected, and back to a clean start.
  [[nodiscard]] bool connect();
  [[nodiscard]] bool close();
  // As many requests as the ring takes; responses are thrown away.
  void refill(const peer::front::Put& request);

  peer::ScriptedFront<apps::EmuPlatform>& front() { return *front_; }
  peer::FrontPlayer<apps::EmuPlatform>& player() { return *player_; }

 private:
  keystore::Client keys_;
  std::unique_ptr<hypervisor::emu::EmuGuest> guest_;
  std::unique_ptr<peer::ScriptedFront<apps::EmuPlatform>> front_;
  std::unique_ptr<peer::FrontPlayer<apps::EmuPlatform>> player_;
  std::string backend_;
};

// Connects, says that it is ready, and attacks again and again.
GuestProcess::Life hostile_life(const EmuRig& rig, DomId domain, std::function<void(HostileGuest&)> attack);

}  // namespace xblk::scenarios
