#include "drivers/scenarios/model_rig.hpp"

#include <fmt/format.h>

#include "drivers/base/check.hpp"

namespace xblk::scenarios {
namespace {

constexpr std::uint32_t kGuestPages = 8192;  // 32 MiB
constexpr const char* kDevid = "51712";      // xvda

}  // namespace

std::string ModelRig::frontend_path(DomId domain) {
  return fmt::format("/local/domain/{}/device/vbd/{}", domain.value(), kDevid);
}
std::string ModelRig::backend_path(DomId domain) {
  return fmt::format("{}/{}/{}", blkback::kBackendRoot, domain.value(), kDevid);
}

ModelRig::ModelRig(std::uint64_t seed, hypervisor::HypervisorConfig config)
    : random_(seed),
      hypervisor_(env_, config),
      dom0_(hypervisor_),
      keys_(tree_, kDom0),
      context_{env_, dom0_, keys_, {&rings_}, "", [this](const std::string& line) { log_.push_back(line); }},
      manager_(context_) {
  XBLK_CHECK(manager_.start().has_value(), "the in-memory store takes any watch");
}

ModelRig::~ModelRig() {
  for (auto& [domain, guest] : guests_) guest.device.reset();
}

void ModelRig::add_bare_guest(DomId domain, const VbdOptions& options) {
  Guest& guest = guests_[domain];
  guest.keys = std::make_unique<env::MemoryKeys>(tree_, domain);
  auto created = hypervisor::InProcessGuest<env::VirtualEnv>::create(hypervisor_, domain, kGuestPages);
  XBLK_CHECK(created.has_value(), "a guest of 32 MiB fits");
  guest.hypervisor = std::move(*created);
  const std::string front = frontend_path(domain);
  const std::string back = backend_path(domain);
  const auto written = keys_.transaction([&](env::MemoryKeys& keys) -> Status {
    const blkif::KeyList entries = {{back + "/frontend", front},
                                    {back + "/frontend-id", std::to_string(domain.value())},
                                    {back + "/online", "1"},
                                    {back + "/params", options.store},
                                    {back + "/mode", options.mode},
                                    {back + "/state", "1"},
                                    {front + "/backend", back},
                                    {front + "/backend-id", "0"},
                                    {front + "/virtual-device", kDevid},
                                    {front + "/state", "1"}};
    for (const auto& [key, value] : entries) static_cast<void>(keys.write(key, value));
    for (const auto& [name, value] : options.front_policy)
      static_cast<void>(keys.write(front + "/xblk-policy/" + name, value));
    for (const auto& [name, value] : options.back_policy)
      static_cast<void>(keys.write(back + "/xblk-policy/" + name, value));
    return {};
  });
  XBLK_CHECK(written.has_value(), "the in-memory store takes any key");
}

blkfront::Device<ModelPlatform>& ModelRig::add_guest(DomId domain, const VbdOptions& options) {
  add_bare_guest(domain, options);
  Guest& guest = guests_.at(domain);
  guest.device = std::make_unique<blkfront::Device<ModelPlatform>>(
      env_, *guest.hypervisor, *guest.keys, blkfront::Device<ModelPlatform>::Options{frontend_path(domain), {}},
      StatisticsFile::anonymous(End::front, blkif::kQueuesMax));
  const auto started = guest.device->start();
  XBLK_CHECK(started.has_value(), "the directory was written just above");
  return *guest.device;
}

void ModelRig::turn() {
  env_.advance_to(env_.now() + micros(1));
  // Actors: the backend's control thread, each ring, each guest's control thread. One of them, at random.
  const std::uint64_t actor = random_.below(1 + rings_.rings.size() + guests_.size());
  if (actor == 0) return manager_.turn();
  if (actor <= rings_.rings.size()) {
    blkback::RingStep& ring = *rings_.rings[actor - 1];
    ring.take_event();
    ring.step(static_cast<unsigned>(1 + random_.below(64)));
    static_cast<void>(ring.arm(env_.now()));
    return;
  }
  auto guest = guests_.begin();
  std::advance(guest, static_cast<std::ptrdiff_t>(actor - 1 - rings_.rings.size()));
  if (guest->second.device != nullptr) guest->second.device->turn();
}

bool ModelRig::run_until(const std::function<bool()>& done, int turns_max) {
  for (int i = 0; i < turns_max; ++i) {
    if (done()) return true;
    turn();
  }
  return done();
}

Status ModelRig::restart_backends() {
  manager_.abandon();
  return manager_.start();
}

void ModelRig::kill_guest(DomId domain) {
  Guest& guest = guests_.at(domain);
  if (guest.device != nullptr) guest.device->backend_gone();
  guest.device.reset();
  guest.hypervisor.reset();
  guests_.erase(domain);
  manager_.frontend_gone(domain);
}

hypervisor::InProcessGuest<env::VirtualEnv>& ModelRig::guest(DomId domain) {
  return *guests_.at(domain).hypervisor;
}

env::MemoryKeys& ModelRig::guest_keys(DomId domain) {
  return *guests_.at(domain).keys;
}

}  // namespace xblk::scenarios
