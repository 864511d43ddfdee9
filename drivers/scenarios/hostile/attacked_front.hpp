// The real frontend with a scripted backend and a user that does I/O: what a hostile backend can attack, cheap enough
// to be made anew for each run of a fuzzer. Whatever the backend does, the frontend keeps these promises; the first one
// that it breaks is its finding():
//
//   * each I/O that it takes completes once, with one of the errors that are documented, and none does after the close
//   * it touches no memory of its user but that of I/Os in flight
//   * once the backend has given back what it held, every page of the guest is free again; only what it holds while it
//     says that it does not serve stays out of use for good
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "drivers/base/counters.hpp"
#include "drivers/blkfront/device.hpp"
#include "drivers/peer/back_script.hpp"
#include "drivers/peer/scripted_back.hpp"
#include "drivers/scenarios/model_rig.hpp"

namespace xblk::scenarios {

struct AttackedFrontSetup {
  blkif::PolicyMap policy;
  bool backend_persistent = true;
  std::string starts_at = "1";  // the backend's state when the frontend appears
};

class AttackedFront {
 public:
  static constexpr std::uint32_t kBufferPages = 16;
  static constexpr DomId kGuest{1};

  explicit AttackedFront(const AttackedFrontSetup& setup);
  ~AttackedFront();
  AttackedFront(const AttackedFront&) = delete;
  AttackedFront& operator=(const AttackedFront&) = delete;

  // As good ends do: limits, rings, properties. False: it did not come to that.
  bool connect();
  void play(const peer::BackScript& script) {
    for (const auto& operation : script) play(operation);
  }
  void play(const peer::back::Operation& operation) {
    std::visit([this](const auto& one) { this->execute(one); }, operation);
  }
  // The backend gives back what it holds and closes, the user closes too; then nothing may be left.
  void finish();

  [[nodiscard]] const std::string& finding() const { return finding_; }
  // Of all I/Os that have completed, oldest first.
  [[nodiscard]] const std::vector<int>& errors() const { return errors_; }
  // Of the submission that was refused last.
  [[nodiscard]] int refused() const { return refused_; }
  [[nodiscard]] std::uint32_t in_flight() const;
  [[nodiscard]] std::uint64_t count(Counter counter) { return device_->statistics().queues()[0].get(counter); }
  [[nodiscard]] std::string front_key(const std::string& name);
  [[nodiscard]] blkfront::Device<ModelPlatform>& device() { return *device_; }
  [[nodiscard]] peer::ScriptedBack<ModelPlatform>& back() { return *back_; }
  [[nodiscard]] hypervisor::InProcessGuest<env::VirtualEnv>& guest() { return *guest_; }
  // The requests that the backend has taken and not answered, oldest first.
  [[nodiscard]] const std::vector<blkif::Request>& open_requests();
  [[nodiscard]] std::span<std::byte> buffer() const { return buffer_; }
  [[nodiscard]] const std::vector<platform::MapOp>& held_by_backend() const { return held_; }

 private:
  enum class IoStatus : std::uint8_t { in_flight, completed };

  void execute(const peer::back::Respond& respond);
  void execute(const peer::back::RespondBytes& respond);
  void execute(const peer::SetIndex& set);
  void execute(const peer::Notify& notify);
  void execute(const peer::back::Hold& hold);
  void execute(const peer::back::HoldGuess& guess) { keep(GrantRef(guess.gref)); }
  void execute(const peer::back::LetGo&);
  void execute(const peer::back::Key& key) { back_->write(key.name, key.value); }
  void execute(const peer::back::RemoveKey& key);
  void execute(const peer::back::State& state) { back_->set_state(state.value); }
  void execute(const peer::back::Negotiate&);
  void execute(const peer::back::Detach&) { back_->release(); }
  void execute(const peer::back::Submit& submit);
  void execute(const peer::back::Reap& reap);
  void execute(const peer::back::Turn&);
  void execute(const peer::back::Reconnect&);
  void execute(const peer::back::Close&) { device_->request_close(); }

  void keep(GrantRef gref);
  void start_channel();
  [[nodiscard]] bool is_ring(const std::byte* page);
  void complete(const blkfront::Completion& completion);
  // Pages of the user that no I/O has named.
  void check_untouched();
  void find(const std::string& what) {
    if (finding_.empty()) finding_ = what;
  }

  env::VirtualEnv env_;
  hypervisor::Hypervisor<env::VirtualEnv> hypervisor_;
  hypervisor::Dom0<env::VirtualEnv> dom0_{hypervisor_};
  env::MemoryStore tree_;
  env::MemoryKeys back_keys_{tree_, kDom0};
  env::MemoryKeys front_keys_{tree_, kGuest};
  std::unique_ptr<hypervisor::InProcessGuest<env::VirtualEnv>> guest_;
  std::unique_ptr<peer::ScriptedBack<ModelPlatform>> back_;
  std::unique_ptr<blkfront::Device<ModelPlatform>> device_;
  std::unique_ptr<blkfront::Channel> channel_;
  std::span<std::byte> buffer_;

  std::vector<blkif::Request> requests_;
  std::vector<platform::MapOp> held_;
  std::vector<IoStatus> ios_;  // by cookie
  std::vector<int> errors_;
  std::array<bool, kBufferPages> used_{};  // pages of the buffer that an I/O has named
  bool ring_spoiled_ = false;              // by the backend itself: what stands there is no request of the frontend
  bool kept_pages_ = false;                // it held some while it said that it does not serve
  int refused_ = 0;
  int reconnects_ = 0;
  std::string finding_;
};

}  // namespace xblk::scenarios
