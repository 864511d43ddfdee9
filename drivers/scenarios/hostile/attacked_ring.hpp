// One ring of the real backend, its frontend scripted and its store in hand: the smallest thing that a hostile frontend
// can attack, cheap enough to be made anew for each run of a fuzzer. Whatever the frontend does, the backend keeps
// these promises; the first one that it breaks is its finding():
//
//   * each request that it takes gets one response: same id, same operation, a status of the protocol, padding zero
//   * a request that is well-formed, on good grants, with a store that works, succeeds; a malformed one does not
//   * it touches no page of the frontend but those of its requests
//   * disconnected it holds nothing, and every gauge is zero
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "drivers/base/counters.hpp"
#include "drivers/blkback/connection.hpp"
#include "drivers/peer/front_player.hpp"
#include "drivers/peer/held_store.hpp"
#include "drivers/peer/scripted_front.hpp"
#include "drivers/peer/watched_page.hpp"
#include "drivers/scenarios/model_rig.hpp"

namespace xblk::scenarios {

struct AttackedRingSetup {
  blkif::Abi abi = blkif::kNativeAbi;
  std::uint32_t ring_page_order = 0;
  blkif::BackPolicy policy;
  bool frontend_persistent = true;
  bool readonly = false;
  std::uint32_t mappings_max = 1024;        // of the backend, rings included
  std::uint32_t sector_size = kSectorSize;  // of the store
  bool store_at_once = true;                // else it finishes what finish() names
};

class AttackedRing {
 public:
  explicit AttackedRing(const AttackedRingSetup& setup);
  ~AttackedRing();
  AttackedRing(const AttackedRing&) = delete;
  AttackedRing& operator=(const AttackedRing&) = delete;

  // Nothing, or why the backend did not take the ring. Connected before: a reconnect, to fresh rings.
  std::optional<std::string> connect();
  // The same to rings as they are now, whatever stands there.
  std::optional<std::string> attach();
  void disconnect();
  [[nodiscard]] bool connected() const { return connection_ != nullptr; }

  void play(const peer::FrontScript& script) { player_->play(script); }
  void play(const peer::front::Operation& operation) { player_->play(operation); }
  // A dispatch round of the backend, and what it does before it sleeps.
  void turn();
  // The round alone, over at most `budget` requests.
  blkback::StepResult round(unsigned budget);
  // The same; what the backend did to `page` meanwhile.
  std::vector<peer::WatchedPage::Access> watched_turn(std::byte* page);
  // Ends an operation at the store.
  void finish(std::size_t position, int error);

  [[nodiscard]] const std::string& finding() const { return finding_; }
  // Of the responses so far, oldest first.
  [[nodiscard]] const std::vector<blkif::Response>& responses() const { return responses_; }
  [[nodiscard]] std::uint64_t count(Counter counter) const { return counters_.get(counter); }
  [[nodiscard]] std::uint64_t gauge(Gauge gauge) const { return counters_.get(gauge); }
  [[nodiscard]] hypervisor::HypervisorUsage usage() { return hypervisor_.usage(); }
  [[nodiscard]] bool halted() const { return connection_ != nullptr && connection_->halted_ring().has_value(); }
  [[nodiscard]] peer::ScriptedFront<ModelPlatform>& front() { return *front_; }
  [[nodiscard]] peer::FrontPlayer<ModelPlatform>& player() { return *player_; }
  [[nodiscard]] hypervisor::InProcessGuest<env::VirtualEnv>& guest() { return *guest_; }
  [[nodiscard]] hypervisor::Dom0<env::VirtualEnv>& dom0() { return dom0_; }
  [[nodiscard]] peer::HeldStore& store() { return store_; }
  [[nodiscard]] blkback::RingStep& ring() { return *runner_.ring; }
  [[nodiscard]] env::VirtualEnv& env() { return env_; }

 private:
  // Steps nothing by itself; a detach lets the store finish what it has.
  struct ByHand final : blkback::RingRunner<env::VirtualEnv::Waitable> {
    explicit ByHand(AttackedRing& r) : rig(r) {}
    void attach(blkback::RingStep& attached, env::VirtualEnv::Waitable, const env::VirtualEnv::Waitable*) override {
      ring = &attached;
    }
    void detach(blkback::RingStep& detached) override;
    void wake() override {}
    AttackedRing& rig;
    blkback::RingStep* ring = nullptr;
  };
  enum class Expected : std::uint8_t { anything, success, failure };
  struct Owed {
    std::uint64_t id = 0;
    blkif::Op op = blkif::Op::read;
    Expected expected = Expected::anything;
  };

  // One dispatch round, without a look at what came of it.
  blkback::StepResult step(unsigned budget);

  // ---- the promises ----
  // What stands on the ring and has not been taken, before the backend runs; and what it did with it afterwards.
  std::vector<Owed> pending(std::uint32_t most);
  void settle(const std::vector<Owed>& pending);
  void settle_response(std::uint32_t index);
  void check_disconnected();
  [[nodiscard]] Expected expected_of(const blkif::RawRequest& raw);
  [[nodiscard]] blkif::DeviceLimits limits() const;
  void find(const std::string& what) {
    if (finding_.empty()) finding_ = what;
  }

  AttackedRingSetup setup_;
  env::VirtualEnv env_;
  hypervisor::Hypervisor<env::VirtualEnv> hypervisor_;
  hypervisor::Dom0<env::VirtualEnv> dom0_{hypervisor_};
  env::MemoryStore tree_;
  env::MemoryKeys keys_{tree_, DomId(1)};
  std::unique_ptr<hypervisor::InProcessGuest<env::VirtualEnv>> guest_;
  peer::HeldStore store_;
  QueueCounters counters_;
  ByHand runner_{*this};
  std::unique_ptr<peer::ScriptedFront<ModelPlatform>> front_;
  std::unique_ptr<peer::FrontPlayer<ModelPlatform>> player_;
  std::unique_ptr<blkback::Connection<ModelPlatform>> connection_;

  bool store_failed_ = false;
  std::uint32_t consumed_ = 0;  // ring indexes of the backend: as it must have them, whatever the shared words say
  std::uint32_t responded_ = 0;
  std::uint64_t requests_before_ = 0;
  std::uint64_t responses_before_ = 0;
  std::deque<Owed> owed_;
  std::vector<blkif::Response> responses_;
  std::string finding_;
};

}  // namespace xblk::scenarios
