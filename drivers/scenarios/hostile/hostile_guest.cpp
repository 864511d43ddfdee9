#include "drivers/scenarios/hostile/hostile_guest.hpp"

#include <utility>

#include "drivers/base/check.hpp"
#include "drivers/scenarios/emu_checks.hpp"

namespace xblk::scenarios {
namespace {

constexpr std::uint32_t kGuestPages = 1024;

keystore::Client keys_of(const EmuRig& rig, DomId domain) {
  auto keys = keystore::Client::connect(rig.options(domain).xenstore_socket);
  XBLK_CHECK(keys.has_value(), "a guest reaches its xenstore");
  return std::move(*keys);
}

std::unique_ptr<hypervisor::emu::EmuGuest> guest_of(const EmuRig& rig, DomId domain) {
  auto guest = hypervisor::emu::EmuGuest::attach(rig.options(domain).hypervisor_socket, domain, kGuestPages);
  XBLK_CHECK(guest.has_value(), "the host lets the guest in");
  return std::move(*guest);
}

}  // namespace

HostileGuest::HostileGuest(const EmuRig& rig, DomId domain)
    : keys_(keys_of(rig, domain)),
      guest_(guest_of(rig, domain)),
      front_(std::make_unique<peer::ScriptedFront<apps::EmuPlatform>>(*guest_, keys_, rig.options(domain).device)),
      player_(
          std::make_unique<peer::FrontPlayer<apps::EmuPlatform>>(*front_, std::span<hypervisor::GrantEntry>(), [] {})),
      backend_(keys_.read(rig.options(domain).device + "/backend").value()) {}

bool HostileGuest::wait_for_backend(const std::string& state) {
  return eventually([&] { return keys_.read(backend_ + "/state").value_or("") == state; });
}

bool HostileGuest::connect() {
  front_->set_state("1");
  if (!wait_for_backend("2")) return false;
  front_->publish();
  return wait_for_backend("4");
}

bool HostileGuest::close() {
  front_->set_state("6");
  return wait_for_backend("6") && front_->withdraw();
}

void HostileGuest::refill(const peer::front::Put& request) {
  while (front_->take_response()) {
  }
  while (front_->produced() - front_->taken() < front_->slots()) player_->play(request);
  player_->play(peer::front::Push{});
}

GuestProcess::Life hostile_life(const EmuRig& rig, DomId domain, std::function<void(HostileGuest&)> attack) {
  return [&rig, domain, attack = std::move(attack)](GuestProcess::Parent& parent) -> std::string {
    HostileGuest guest(rig, domain);
    if (!guest.connect()) return "could not connect";
    parent.say_ready();
    while (!parent.wants_stop()) attack(guest);
    return "";
  };
}

}  // namespace xblk::scenarios
