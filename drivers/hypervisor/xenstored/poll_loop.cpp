#include "drivers/hypervisor/xenstored/poll_loop.hpp"

#include <sys/epoll.h>
#include <sys/eventfd.h>

#include <array>

#include "drivers/base/check.hpp"

namespace xblk::hypervisor {
namespace {

// epoll reports 64 bits per event: the descriptor in the low half, the low half of the entry's id above it.
std::uint64_t pack(int fd, std::uint64_t id) {
  return (id << 32) | static_cast<std::uint32_t>(fd);
}

}  // namespace

Result<std::unique_ptr<PollLoop>> PollLoop::create() {
  UniqueFd epoll(::epoll_create1(EPOLL_CLOEXEC));
  if (!epoll) return fail_errno("epoll_create1");
  UniqueFd wake(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake) return fail_errno("eventfd");
  std::unique_ptr<PollLoop> loop(new PollLoop(std::move(epoll), std::move(wake)));
  Status added = loop->add(loop->wake_.get(), EPOLLIN, [self = loop.get()](std::uint32_t) { self->run_posted(); });
  if (!added) return tl::unexpected(added.error());
  return loop;
}

Status PollLoop::add(int fd, std::uint32_t events, Handler handler) {
  epoll_event event{};
  event.events = events;
  event.data.u64 = pack(fd, next_id_);
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0) return fail_errno("epoll_ctl: add");
  entries_[fd] = {next_id_++, events, std::make_shared<Handler>(std::move(handler))};
  return {};
}

void PollLoop::modify(int fd, std::uint32_t events) {
  Entry& entry = entries_.at(fd);
  if (entry.events == events) return;
  entry.events = events;
  epoll_event event{};
  event.events = events;
  event.data.u64 = pack(fd, entry.id);
  XBLK_CHECK(::epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, fd, &event) == 0, "the descriptor is in the set");
}

void PollLoop::remove(int fd) {
  if (entries_.erase(fd) > 0) ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
}

void PollLoop::run() {
  std::array<epoll_event, 64> events;
  while (running_) {
    const int count = ::epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), -1);
    for (int i = 0; i < count && running_; ++i) {
      const int fd = static_cast<int>(static_cast<std::uint32_t>(events[i].data.u64));
      const auto entry = entries_.find(fd);
      if (entry == entries_.end() || pack(fd, entry->second.id) != events[i].data.u64) continue;
      const auto handler = entry->second.handler;  // kept alive: the handler may remove itself
      (*handler)(events[i].events);
    }
  }
}

void PollLoop::stop() {
  running_ = false;
}

void PollLoop::post(std::function<void()> task) {
  {
    const std::scoped_lock lock(posted_mutex_);
    posted_.push_back(std::move(task));
  }
  const std::uint64_t one = 1;
  XBLK_CHECK(::write(wake_.get(), &one, sizeof one) == sizeof one, "an eventfd counter of wake-ups does not overflow");
}

void PollLoop::run_posted() {
  std::uint64_t count = 0;
  if (::read(wake_.get(), &count, sizeof count) < 0) return;
  std::vector<std::function<void()>> tasks;
  {
    const std::scoped_lock lock(posted_mutex_);
    tasks.swap(posted_);
  }
  for (const auto& task : tasks) task();
}

}  // namespace xblk::hypervisor
