// A guest as a process of its own: forked from the test, told to stop through a pipe, or killed.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>

#include "drivers/base/unique_fd.hpp"
#include "drivers/base/units.hpp"
#include "drivers/scenarios/emu_rig.hpp"
#include "drivers/scenarios/workload.hpp"

namespace xblk::scenarios {

class GuestProcess {
 public:
  // The parent as the guest sees it.
  class Parent {
   public:
    Parent(int to_parent, int from_parent) : to_parent_(to_parent), from_parent_(from_parent) {}
    void say_ready();
    [[nodiscard]] bool wants_stop() const;

   private:
    int to_parent_;
    int from_parent_;
  };
  // The guest's life; returns what went wrong, or nothing.
  using Life = std::function<std::string(Parent&)>;

  // The test may have no other thread at this moment.
  explicit GuestProcess(const Life& life);
  ~GuestProcess();  // kill()
  GuestProcess(GuestProcess&& other) noexcept;
  GuestProcess& operator=(GuestProcess&&) = delete;

  // False: it ended before it was ready.
  [[nodiscard]] bool wait_until_ready();
  // Asks it to stop and waits for its report.
  std::string stop();
  // Waits for a guest that ends by itself; its report.
  std::string wait_for_end();
  // As a crash: at any moment, without a word.
  void kill();

 private:
  pid_t pid_ = -1;
  UniqueFd from_guest_;
  UniqueFd to_guest_;
};

// A life under verified load: connects the vbd of `guest`, keeps the load on its channels until the parent wants it to
// stop, then lets it finish and disconnects.
struct GuestLoad {
  unsigned channels = 1;  // each with its own part of the device
  Sectors first{};        // the guest's part of the device, for all channels together
  Sectors length{4096};
  unsigned depth = 8;  // per channel
  bool discards = true;
  bool barriers = true;
  unsigned flush_one_in = 16;  // I/Os
  std::uint64_t seed = 1;
  std::chrono::microseconds pause{0};  // between two turns of all channels
};
GuestProcess::Life life_under_load(const EmuRig& rig, DomId guest, const GuestLoad& load);

}  // namespace xblk::scenarios
