// A process as a guest of the emulated host (platform::FrontHypervisor). Grants are stores to shared memory, a notify
// is one eventfd write; only ports are asked of the host, and such a request fails after kReplyTimeout instead of
// hanging.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "drivers/base/result.hpp"
#include "drivers/base/units.hpp"
#include "drivers/env/real/real_env.hpp"
#include "drivers/hypervisor/emu/protocol.hpp"
#include "drivers/hypervisor/event_channels.hpp"
#include "drivers/hypervisor/guest.hpp"
#include "drivers/platform/concepts.hpp"

namespace xblk::hypervisor::emu {

class EmuGuest {
 public:
  static constexpr std::chrono::seconds kReplyTimeout{10};

  // Becomes domain `id` of the host behind the socket, with `pages` of memory, until destroyed.
  // ENODEV: no host there; EBUSY: another process is that domain.
  static Result<std::unique_ptr<EmuGuest>> attach(const std::string& socket_path, DomId id, std::uint32_t pages);
  EmuGuest(const EmuGuest&) = delete;
  EmuGuest& operator=(const EmuGuest&) = delete;

  // ---- platform::GrantIssuer; any thread ----------------------------------------------------------------------------
  Result<platform::PageBlock> allocate_pages(DomId peer, std::uint32_t pages) {
    return pages_.allocate_pages(peer, pages);
  }
  void free_pages(const platform::PageBlock& block) { pages_.free_pages(block); }
  [[nodiscard]] std::optional<FrameNumber> frame_of(const std::byte* address) const { return pages_.frame_of(address); }
  Result<GrantRef> grant(DomId peer, FrameNumber frame, platform::Access access) {
    return pages_.grant(peer, frame, access);
  }
  bool end_access(GrantRef gref) { return pages_.end_access(gref); }
  [[nodiscard]] DomId domain() const { return pages_.domain(); }

  // ---- platform::EventChannels; any thread, but a port is not used while it is being closed
  // --------------------------
  Result<EventPort> allocate_port(DomId remote);
  void close_port(EventPort port);
  void notify(EventPort port);
  bool consume(EventPort port);
  void mask(EventPort port);
  void unmask(EventPort port);
  [[nodiscard]] int waitable(EventPort port);

  // ---- Life of the host ---------------------------------------------------------------------------------------------
  // Readable when the host is gone. The waitables of all ports turn readable then, too, so that a waiter on those alone
  // wakes up; it then asks host_gone().
  [[nodiscard]] int host_fd() const { return socket_.get(); }
  [[nodiscard]] bool host_gone() const;
  Status ping();  // ENODEV or ETIMEDOUT when the host does not answer

 private:
  struct Port {
    Endpoint<env::RealEnv> local;    // receives
    EventBell<env::RealEnv> remote;  // sends: the host's end
  };
  struct Handover {  // what attach received
    env::RealMemory memory;
    env::RealMemory grant_frames;
    env::RealMemory event_page;
    std::uint32_t ports = 0;
  };

  EmuGuest(Descriptor socket, DomId id, Handover handover);
  static Result<Received> request(int socket, const Message& message);
  Result<Received> request(const Message& message);
  Port& port(EventPort number);

  Descriptor socket_;
  std::mutex request_mutex_;  // one request at a time on the socket
  mutable std::atomic<bool> gone_{false};
  env::RealEnv env_;
  env::RealMemory memory_;
  env::RealMemory grant_frames_;
  std::shared_ptr<env::RealMemory> event_page_;
  GuestPages<env::RealEnv> pages_;
  std::vector<std::unique_ptr<Port>> ports_;  // by port number; never resized
};

static_assert(platform::FrontHypervisor<EmuGuest>);

}  // namespace xblk::hypervisor::emu
