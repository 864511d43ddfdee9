// PollLoop: one epoll set with a handler per descriptor, run by one thread. Other threads may only call post().
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "drivers/base/result.hpp"
#include "drivers/base/unique_fd.hpp"

namespace xblk::hypervisor {

class PollLoop {
 public:
  using Handler = std::function<void(std::uint32_t ready)>;  // EPOLLIN, EPOLLOUT, EPOLLHUP, EPOLLERR

  static Result<std::unique_ptr<PollLoop>> create();

  // A handler may add, modify and remove any descriptor, its own included.
  Status add(int fd, std::uint32_t events, Handler handler);
  void modify(int fd, std::uint32_t events);
  void remove(int fd);  // before the descriptor is closed

  void run();                             // until stop()
  void stop();                            // on the loop's thread
  void post(std::function<void()> task);  // from any thread: runs on the loop's thread

 private:
  struct Entry {
    std::uint64_t id;  // tells a reused descriptor number from the one that an event was reported for
    std::uint32_t events;
    std::shared_ptr<Handler> handler;
  };

  PollLoop(UniqueFd epoll, UniqueFd wake) : epoll_(std::move(epoll)), wake_(std::move(wake)) {}
  void run_posted();

  UniqueFd epoll_;
  UniqueFd wake_;
  std::map<int, Entry> entries_;
  std::uint64_t next_id_ = 1;
  bool running_ = true;
  std::mutex posted_mutex_;
  std::vector<std::function<void()>> posted_;
};

}  // namespace xblk::hypervisor
