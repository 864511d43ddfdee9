#include <sys/epoll.h>
#include <sys/timerfd.h>

#include <algorithm>
#include <array>

#include "drivers/base/check.hpp"
#include "drivers/env/real/real_env.hpp"

namespace xblk::env {
namespace {

constexpr std::uint64_t kWakeToken = ~std::uint64_t{0};
constexpr std::uint64_t kAlarmToken = kWakeToken - 1;
constexpr Nanos kFar = millis(1);  // shorter sleeps pay for a timer of their own, and are exact

timespec to_timespec(std::int64_t ns) {
  return {ns / 1'000'000'000, ns % 1'000'000'000};
}

}  // namespace

RealEnv::WaitSet::WaitSet(RealEnv& env)
    : env_(env),
      epoll_(::epoll_create1(EPOLL_CLOEXEC)),
      timer_(::timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK)) {
  auto bell = RealDoorbell::create();
  XBLK_CHECK(epoll_ && timer_ && bell.has_value(),
             "a waiting thread needs an epoll descriptor, a timerfd and an eventfd; raise the limit of open files");
  wake_ = std::move(*bell);
  XBLK_CHECK(add(wake_.waitable(), kWakeToken) && add(timer_.get(), kAlarmToken), "both can always be polled");
}

Status RealEnv::WaitSet::add(Waitable source, std::uint64_t token) {
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u64 = token;
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, source, &event) != 0) return fail_errno("epoll_ctl");
  return {};
}

void RealEnv::WaitSet::remove(Waitable source) {
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, source, nullptr);
}

void RealEnv::WaitSet::wait(Instant deadline, std::vector<std::uint64_t>& ready) {
  for (;;) {
    if (deadline == Instant::never()) {
      if (poll(nullptr, ready)) return;
      continue;
    }
    const Nanos left = std::max(Nanos(0), deadline - env_.now());
    const bool far = left > kFar;
    if (far) set_alarm(deadline);
    // The alarm alone wakes nobody: it may be an earlier deadline's, and the next turn sees whether it was this one's.
    if (poll(far ? nullptr : &left, ready) || !far) return;
  }
}

bool RealEnv::WaitSet::poll(const Nanos* left, std::vector<std::uint64_t>& ready) {
  const timespec timeout = to_timespec(left == nullptr ? 0 : left->value());
  std::array<epoll_event, 64> events;
  const int n = ::epoll_pwait2(epoll_.get(), events.data(), static_cast<int>(events.size()),
                               left == nullptr ? nullptr : &timeout, nullptr);
  bool found = false;
  for (int i = 0; i < n; ++i) {
    const std::uint64_t token = events[static_cast<std::size_t>(i)].data.u64;
    found |= token != kAlarmToken;
    if (token == kWakeToken) {
      wake_.consume();
    } else if (token == kAlarmToken) {
      std::uint64_t expirations = 0;
      static_cast<void>(::read(timer_.get(), &expirations, sizeof expirations));
      alarm_ = Instant::never();
    } else {
      ready.push_back(token);
    }
  }
  return found;
}

void RealEnv::WaitSet::set_alarm(Instant deadline) {
  if (alarm_ <= deadline) return;
  itimerspec when{};
  when.it_value = to_timespec(deadline.ns());
  XBLK_CHECK(::timerfd_settime(timer_.get(), TFD_TIMER_ABSTIME, &when, nullptr) == 0, "an instant ahead of us");
  alarm_ = deadline;
}

void RealEnv::WaitSet::wake() {
  wake_.ring();
}

}  // namespace xblk::env
